// Writes and reads the first bytes of a connection of the data transport (proto/slotwise/v1/data.proto).
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

// Both sides send this first: the magic, the version, and the size of the shared buffer that is asked for or
// given, all little-endian.
using Preface = std::array<std::byte, 16>;

// A shared buffer of `mib` MiB, at most kMostSharedBufferMib, in the host's memory or the memory of the
// rank's device.
struct AskedSharedBuffer {
  std::uint32_t mib = 0;
  bool on_device = false;
};
inline constexpr std::uint32_t kMostSharedBufferMib = 0x7FFF'FFFF;

inline Preface MakePreface(std::uint32_t version, AskedSharedBuffer shared_buffer = {}) {
  Preface bytes{};
  const std::uint32_t asked = shared_buffer.mib | (shared_buffer.on_device ? kMostSharedBufferMib + 1 : 0);
  std::memcpy(bytes.data(), kDataMagic.data(), kDataMagic.size());
  std::memcpy(bytes.data() + kDataMagic.size(), &version, sizeof(version));
  std::memcpy(bytes.data() + kDataMagic.size() + sizeof(version), &asked, sizeof(asked));
  return bytes;
}

// Returns the version; nothing if `bytes` are not a preface.
inline std::optional<std::uint32_t> VersionIn(const Preface& bytes) {
  if (std::memcmp(bytes.data(), kDataMagic.data(), kDataMagic.size()) != 0) return std::nullopt;
  std::uint32_t version = 0;
  std::memcpy(&version, bytes.data() + kDataMagic.size(), sizeof(version));
  return version;
}

// REQUIRES: `bytes` are a preface.
inline AskedSharedBuffer SharedBufferIn(const Preface& bytes) {
  std::uint32_t asked = 0;
  std::memcpy(&asked, bytes.data() + kDataMagic.size() + sizeof(std::uint32_t), sizeof(asked));
  return {asked & kMostSharedBufferMib, asked > kMostSharedBufferMib};
}

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_DATA_VERSION_H_
