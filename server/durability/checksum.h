// XXH3-64 (https://xxhash.com), the checksum of all files. It detects damage, and is not cryptographic.
// Thread-safety: ChecksumOf, any thread; a Checksum, one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_CHECKSUM_H_
#define SLOTWISE_SERVER_DURABILITY_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace slotwise {

std::uint64_t ChecksumOf(std::span<const std::byte> bytes);
std::uint64_t ChecksumOf(std::string_view text);

// Computes the checksum of bytes that come in pieces. The cuts between the pieces do not matter.
class Checksum {
 public:
  Checksum();

  void Update(std::span<const std::byte> bytes);
  // Returns the checksum of all bytes since the last Take, and starts again.
  std::uint64_t Take();

 private:
  struct State;
  struct Free {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Free> state_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKSUM_H_
