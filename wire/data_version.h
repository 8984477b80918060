// How a connection of the data transport begins (proto/slotwise/v1/data.proto).
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_DATA_VERSION_H_
#define SLOTWISE_WIRE_DATA_VERSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace slotwise {

inline constexpr std::string_view kDataMagic = "SLOTWISE";
inline constexpr std::uint32_t kDataVersion = 1;

// What both sides send first: the magic, the version, little-endian, and four zeros.
using Preface = std::array<std::byte, 16>;

inline Preface MakePreface(std::uint32_t version) {
  Preface bytes{};
  std::memcpy(bytes.data(), kDataMagic.data(), kDataMagic.size());
  std::memcpy(bytes.data() + kDataMagic.size(), &version, sizeof(version));
  return bytes;
}

// Returns the version, if it is a preface.
inline std::optional<std::uint32_t> VersionIn(const Preface& bytes) {
  if (std::memcmp(bytes.data(), kDataMagic.data(), kDataMagic.size()) != 0) return std::nullopt;
  std::uint32_t version = 0;
  std::memcpy(&version, bytes.data() + kDataMagic.size(), sizeof(version));
  return version;
}

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_DATA_VERSION_H_
