// PayloadHash: a hash of what a push holds, so that two bodies under one step's name can be told apart.
//
// It is not cryptographic: it finds mistakes. docs/semantics.md has the formula, which takes any order of
// evaluation, so that a device can compute it as well. It goes at the speed of memory.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_INTAKE_PAYLOAD_HASH_H_
#define SLOTWISE_SERVER_INTAKE_PAYLOAD_HASH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "server/engine/schedule/request.h"
#include "slotwise/data_type.h"

namespace slotwise {

// Hashes an array that comes in pieces: of each pair of 32-bit words, the product of its halves after a
// number was added that depends on the pair's place.
class ArrayHash {
 public:
  ArrayHash() = default;
  // Goes on behind what a device has summed (kernels/ingest_copy.h). REQUIRES: nothing is added any more.
  explicit ArrayHash(const ArrivedArray& summed) : sum_(summed.pairs), words_(summed.words) {}

  // REQUIRES: every piece but the last is a whole number of pairs. `words` need not be aligned.
  void AddWords(const void* words, std::size_t count);
  // Adds the float32 numbers that numbers of that type decode to.
  void AddNumbers(const void* numbers, DataType type, std::size_t count);

  // Returns the hash of the words so far, and of their number.
  std::uint64_t value() const;

 private:
  std::uint64_t sum_ = 0;
  std::uint64_t place_ = 0;  // what is added to the next pair
  std::uint64_t words_ = 0;
};

// Returns the hash of a body whose arrays have those hashes, and that may bring a learning rate.
std::uint32_t PayloadHash(std::uint32_t samples, std::span<const std::uint64_t> arrays,
                          std::optional<float> learning_rate = {});

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_PAYLOAD_HASH_H_
