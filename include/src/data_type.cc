#include "slotwise/data_type.h"

#include <cstring>

namespace slotwise {
namespace {

template <class Convert>
void NarrowEach(std::span<const float> values, std::byte* bytes, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = convert(values[i]);
    std::memcpy(bytes + i * sizeof(half), &half, sizeof(half));
  }
}

template <class Convert>
void WidenEach(const std::byte* bytes, std::span<float> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes + i * sizeof(half), sizeof(half));
    values[i] = convert(half);
  }
}

}  // namespace

std::string_view ToString(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

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
