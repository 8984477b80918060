#include "tests/support/batches.h"

#include <cstdlib>

#include "kernels/body/hash_table.h"
#include "kernels/body/siphash.h"

namespace slotwise::test {

Batch::Batch(std::initializer_list<std::initializer_list<std::uint64_t>> bags) {
  for (const auto& bag : bags) {
    AddBag(bag);
  }
}

Batch OneKeyABag(const std::vector<std::uint64_t>& keys) {
  Batch batch;
  for (const std::uint64_t key : keys) {
    batch.AddBag(std::vector{key});
  }
  return batch;
}

Batch OneBag(const std::vector<std::uint64_t>& keys) {
  Batch batch;
  batch.AddBag(keys);
  return batch;
}

std::vector<std::uint64_t> KeyRange(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> keys(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    keys[i] = first + i;
  }
  return keys;
}

std::uint64_t Seed(std::uint64_t standard) {
  const char* wanted = std::getenv("SLOTWISE_TEST_SEED");
  return wanted == nullptr ? standard : std::strtoull(wanted, nullptr, 0);
}

std::string SeedNote(std::uint64_t seed) {
  return "seed " + std::to_string(seed) + " (again with SLOTWISE_TEST_SEED=" + std::to_string(seed) + ")";
}

Batch RandomBatch(Random& random, const BatchShape& shape) {
  constexpr std::uint64_t kHotKey = 7;
  Batch batch;
  std::vector<std::uint64_t> bag;
  for (std::uint32_t b = 0; b < shape.bags; ++b) {
    bag.resize(random.Below(shape.max_bag + 1));
    for (std::uint64_t& key : bag) {
      const std::uint64_t percent = random.Below(100);
      if (percent < shape.hot_percent) {
        key = kHotKey;
      } else if (percent < shape.hot_percent + shape.special_percent) {
        key = random.OneOf(SpecialKeys());
      } else {
        key = random.Below(shape.distinct_keys);
      }
    }
    batch.AddBag(bag);
  }
  return batch;
}

void AddRandomWeights(Random& random, Batch& batch) {
  batch.weights.resize(batch.keys.size());
  for (std::uint32_t b = 0; b < batch.bags(); ++b) {
    const bool cancels = random.OneIn(5);
    for (std::uint32_t i = batch.offsets[b]; i < batch.offsets[b + 1]; ++i) {
      const auto whole = static_cast<float>(static_cast<std::int64_t>(random.Below(2001)) - 1000);
      batch.weights[i] = random.OneIn(10) ? 0.0F : whole * 0.003F;
      if (cancels) batch.weights[i] = (i - batch.offsets[b]) % 2 == 0 ? 0.75F : -0.75F;
    }
  }
}

std::vector<float> RandomGradients(Random& random, std::size_t count) {
  static const std::vector<float> kScales{1.0F, 1.0F, 0.001F, 37.0F, 1000.0F};
  std::vector<float> gradients(count);
  for (float& gradient : gradients) {
    const auto whole = static_cast<float>(static_cast<std::int64_t>(random.Below(2'000'001)) - 1'000'000);
    gradient = whole * 1e-6F * random.OneOf(kScales);
  }
  return gradients;
}

std::vector<float> IntegerGradients(Random& random, std::size_t count) {
  std::vector<float> gradients(count);
  for (float& gradient : gradients) {
    gradient = static_cast<float>(static_cast<std::int64_t>(random.Below(17)) - 8);
  }
  return gradients;
}

const std::vector<std::uint64_t>& SpecialKeys() {
  static const std::vector<std::uint64_t> kKeys{
      0x0000'0000'0000'0000,  // zero
      0x0000'0000'0000'0001,
      0xFFFF'FFFF'FFFF'FFFF,  // -1, and the largest
      0xFFFF'FFFF'FFFF'FFFE,
      0xFFFF'FFFF'FFFF'FFFD,
      0x8000'0000'0000'0000,  // the smallest as a signed number
      0x8000'0000'0000'0001,
      0x7FFF'FFFF'FFFF'FFFF,  // the largest as a signed number
      0x7FFF'FFFF'FFFF'FFFE,
      0x0000'0000'FFFF'FFFF,  // the largest and -1 of 32 bits, in either half
      0x0000'0001'0000'0000,
      0x0000'0000'8000'0000,
      0x0000'0000'7FFF'FFFF,
      0xFFFF'FFFF'0000'0000,
      0xFFFF'FFFF'8000'0000,
      0x7FFF'FFFF'0000'0000,
      0xCDCD'CDCD'CDCD'CDCD,  // what debuggers and fillers leave behind
      0xDEAD'BEEF'DEAD'BEEF,
      0xAAAA'AAAA'AAAA'AAAA,
      0x5555'5555'5555'5555,
      body::kFree,  // the hash table reserves this key, and stores another in its place
      body::kFreeKeyIsHere,
      KeyOfHash(0xFFFF'FFFF'FFFF'FFFF),  // extremes of the hash instead of the key
      KeyOfHash(0xFFFF'FFFF'FFFF'FFFE),
      KeyOfHash(0x0000'0000'0000'0001),
      KeyOfHash(0x8000'0000'0000'0000),
      KeyOfHash(0x0000'0000'FFFF'FFFF),
      KeyOfHash(0xFFFF'FFFF'0000'0000),
  };
  return kKeys;
}

std::uint64_t KeyOfHash(std::uint64_t hash) {
  // The function inverts mix64: x ^= x >> 33 is its own inverse, and odd factors have inverses modulo 2^64.
  constexpr std::uint64_t kInverseOfFirst = 0x4F74430C22A54005;
  constexpr std::uint64_t kInverseOfSecond = 0x9CB4B2F8129337DB;
  static_assert(kInverseOfFirst * 0xFF51AFD7ED558CCD == 1);
  static_assert(kInverseOfSecond * 0xC4CEB9FE1A85EC53 == 1);
  hash ^= hash >> 33;
  hash *= kInverseOfSecond;
  hash ^= hash >> 33;
  hash *= kInverseOfFirst;
  hash ^= hash >> 33;
  return hash;
}

std::vector<std::uint64_t> KeysOfPlace(const HashSecret& secret, std::uint64_t mask, std::uint64_t wanted,
                                       std::size_t count) {
  const body::PlaceHash hash_of(secret.low(), secret.high());
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; keys.size() < count; ++key) {
    if ((hash_of(key) & mask) == wanted) keys.push_back(key);
  }
  return keys;
}

}  // namespace slotwise::test
