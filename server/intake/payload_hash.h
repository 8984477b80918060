// PayloadHash: hashes the body of a push, to tell two bodies under one step's name apart.
//
// The hash is not cryptographic: it finds mistakes. docs/semantics.md has the formula, which can be evaluated
// in any order, so that a GPU can compute it as well. It runs at the speed of memory.
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

// Hashes an array that comes in pieces. For each pair of 32-bit words it adds a number that depends on the
// pair's place, and sums the products of the halves.
class ArrayHash {
 public:
  ArrayHash() = default;
  // Takes the sum that a device has computed (kernels/ingest_copy.h). REQUIRES: no words are added later.
  explicit ArrayHash(const ArrivedArray& summed) : sum_(summed.pairs), words_(summed.words) {}

  // REQUIRES: every piece but the last is a whole number of pairs. `words` need not be aligned.
  void AddWords(const void* words, std::size_t count);
  // Adds `count` numbers of `type`, as the float32 numbers to which they decode.
  void AddNumbers(const void* numbers, DataType type, std::size_t count);

  // Returns the hash of the words so far, and of their number.
  std::uint64_t value() const;

 private:
  std::uint64_t sum_ = 0;
  std::uint64_t place_ = 0;  // the number to add to the next pair
  std::uint64_t words_ = 0;
};

// Returns the hash of a body from its arrays' hashes, and its learning rate if it has one.
std::uint32_t PayloadHash(std::uint32_t samples, std::span<const std::uint64_t> arrays,
                          std::optional<float> learning_rate = {});

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_PAYLOAD_HASH_H_
