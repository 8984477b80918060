#include "slotwise/data_type.h"

#include <cstring>

namespace slotwise {
namespace {

// Both loops are compiled for every processor and, on x86-64, for those with AVX2 too, which do twice as much
// at a time. The conversions are of integers alone, so both give the same bits.
#if defined(__x86_64__) && defined(__GNUC__)
#define SLOTWISE_HAS_WIDE 1
#define SLOTWISE_WIDE [[gnu::target("avx2")]]
#define SLOTWISE_INLINE [[gnu::always_inline]] inline
bool IsWide() {
  static const bool is_wide = __builtin_cpu_supports("avx2") != 0;
  return is_wide;
}
#else
#define SLOTWISE_INLINE inline
#endif

template <class Convert>
SLOTWISE_INLINE void NarrowLoop(std::span<const float> values, std::byte* bytes, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = convert(values[i]);
    std::memcpy(bytes + i * sizeof(half), &half, sizeof(half));
  }
}

template <class Convert>
SLOTWISE_INLINE void WidenLoop(const std::byte* bytes, std::span<float> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes + i * sizeof(half), sizeof(half));
    values[i] = convert(half);
  }
}

#ifdef SLOTWISE_HAS_WIDE
template <class Convert>
SLOTWISE_WIDE void NarrowWide(std::span<const float> values, std::byte* bytes, Convert convert) {
  NarrowLoop(values, bytes, convert);
}
template <class Convert>
SLOTWISE_WIDE void WidenWide(const std::byte* bytes, std::span<float> values, Convert convert) {
  WidenLoop(bytes, values, convert);
}
#endif

template <class Convert>
void NarrowEach(std::span<const float> values, std::byte* bytes, Convert convert) {
#ifdef SLOTWISE_HAS_WIDE
  if (IsWide()) return NarrowWide(values, bytes, convert);
#endif
  NarrowLoop(values, bytes, convert);
}

template <class Convert>
void WidenEach(const std::byte* bytes, std::span<float> values, Convert convert) {
#ifdef SLOTWISE_HAS_WIDE
  if (IsWide()) return WidenWide(bytes, values, convert);
#endif
  WidenLoop(bytes, values, convert);
}

}  // namespace

void Narrow(std::span<const float> values, DataType type, std::byte* bytes) {
  switch (type) {
    case DataType::kFloat32:
      if (!values.empty()) std::memcpy(bytes, values.data(), values.size_bytes());
      return;
    case DataType::kFloat16:
      return NarrowEach(values, bytes, [](float value) { return ToFloat16(value); });
    case DataType::kBFloat16:
      return NarrowEach(values, bytes, [](float value) { return ToBFloat16(value); });
  }
}

void Widen(const std::byte* bytes, DataType type, std::span<float> values) {
  switch (type) {
    case DataType::kFloat32:
      if (!values.empty()) std::memcpy(values.data(), bytes, values.size_bytes());
      return;
    case DataType::kFloat16:
      return WidenEach(bytes, values, [](std::uint16_t half) { return FromFloat16(half); });
    case DataType::kBFloat16:
      return WidenEach(bytes, values, [](std::uint16_t half) { return FromBFloat16(half); });
  }
}

}  // namespace slotwise
