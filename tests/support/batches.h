// Makes batches for tests: explicit ones, random ones from a seed, and awkward ones.
//
// Random values depend on the seed alone, on every machine, because only the engine of <random> is used, and
// not its distributions.
// Thread-safety: plain values; a Random belongs to one thread.
#ifndef SLOTWISE_TESTS_SUPPORT_BATCHES_H_
#define SLOTWISE_TESTS_SUPPORT_BATCHES_H_

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "kernels/hash_secret.h"
#include "slotwise/batch.h"

namespace slotwise::test {

// A batch that owns its arrays.
struct Batch {
  std::vector<Key> keys;
  std::vector<std::uint32_t> offsets{0};
  std::vector<float> weights;  // one for each key, or none

  Batch() = default;
  // Makes one bag of each inner list: Batch({{1, 2}, {}, {3}}).
  Batch(std::initializer_list<std::initializer_list<std::uint64_t>> bags);

  template <class Range>
  void AddBag(const Range& bag) {
    for (const auto key : bag) {
      keys.push_back(Key{static_cast<std::uint64_t>(key)});
    }
    offsets.push_back(static_cast<std::uint32_t>(keys.size()));
  }

  std::uint32_t bags() const { return static_cast<std::uint32_t>(offsets.size() - 1); }
  // Returns the number of keys in bag b.
  std::uint32_t size(std::uint32_t b) const { return offsets[b + 1] - offsets[b]; }
  // Returns the weight of keys[i].
  float weight(std::uint32_t i) const { return weights.empty() ? 1.0F : weights[i]; }
  BatchView View() const { return {keys, offsets, weights}; }
};

// Makes a bag of its own for each key.
Batch OneKeyABag(const std::vector<std::uint64_t>& keys);
// Makes one bag of all keys.
Batch OneBag(const std::vector<std::uint64_t>& keys);
// Returns keys first, first + 1, ... , first + count - 1.
std::vector<std::uint64_t> KeyRange(std::uint64_t first, std::uint64_t count);

// Returns the seed of a random test: SLOTWISE_TEST_SEED from the environment if set, and else `standard`. Put
// SeedNote(seed) into a SCOPED_TRACE, so that a failure says how to repeat it.
std::uint64_t Seed(std::uint64_t standard);
std::string SeedNote(std::uint64_t seed);

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t Bits() { return engine_(); }
  // Returns a number 0 .. bound - 1. REQUIRES: bound > 0.
  std::uint64_t Below(std::uint64_t bound) { return engine_() % bound; }
  bool OneIn(std::uint64_t n) { return Below(n) == 0; }
  template <class T>
  const T& OneOf(const std::vector<T>& choices) {
    return choices[Below(choices.size())];
  }
  template <class T>
  void Shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[Below(i)]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

// The shape of random batches.
struct BatchShape {
  std::uint32_t bags = 64;
  std::uint32_t max_bag = 8;          // bags hold 0 .. max_bag keys
  std::uint64_t distinct_keys = 500;  // keys come from 0 .. distinct_keys - 1, except:
  std::uint32_t hot_percent = 10;     // the share of one hot key, and
  std::uint32_t special_percent = 2;  // the share of SpecialKeys()
};

Batch RandomBatch(Random& random, const BatchShape& shape);

// Gives every key a weight. Weights have both signs, some are 0, and in some bags they cancel out.
void AddRandomWeights(Random& random, Batch& batch);

// Returns gradients of many magnitudes and both signs, so that another order of summation gives other bytes.
std::vector<float> RandomGradients(Random& random, std::size_t count);
// Returns whole numbers from -8 to 8, whose sums are the same in any order.
std::vector<float> IntegerGradients(Random& random, std::size_t count);

// Returns keys that a hash table might reserve for itself, and keys at an integer's limits.
const std::vector<std::uint64_t>& SpecialKeys();

// Returns the key whose mix64 is `hash`. With it a test, like any client, can choose who owns its keys.
std::uint64_t KeyOfHash(std::uint64_t hash);

// Returns `count` keys whose hash under `secret` has the bits `wanted` where `mask` has ones, so that a test
// with the secret can choose its keys' cells in a hash table. Tries 2^(ones of mask) keys for each.
std::vector<std::uint64_t> KeysOfPlace(const HashSecret& secret, std::uint64_t mask, std::uint64_t wanted,
                                       std::size_t count);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_BATCHES_H_
