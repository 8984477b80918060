// A hash distinguishes two bodies under one name, and does not depend on the transport of their numbers.
#include "server/intake/payload_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "server/intake/finite.h"

namespace slotwise {
namespace {

std::vector<std::uint32_t> Words(std::size_t count) {
  std::vector<std::uint32_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761U + 17);
  return words;
}

std::uint64_t HashOf(const std::vector<std::uint32_t>& words) {
  ArrayHash hash;
  hash.AddWords(words.data(), words.size());
  return hash.value();
}

// The formula of docs/semantics.md, word for word.
std::uint64_t Reference(const std::vector<std::uint32_t>& words) {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    return x ^ x >> 31;
  };
  std::uint64_t sum = 0;
  for (std::size_t j = 0; 2 * j < words.size(); ++j) {
    const std::uint64_t high = 2 * j + 1 < words.size() ? words[2 * j + 1] : 0;
    const std::uint64_t pair = (high << 32 | words[2 * j]) + (j + 1) * 0x9E3779B97F4A7C15U;
    sum += (pair & 0xFFFFFFFFU) * (pair >> 32);
  }
  return mix(sum + mix(words.size()));
}

TEST(PayloadHash, IsTheFormulaInTheDocs) {
  for (const std::size_t count : {0, 1, 2, 3, 8, 1001})
    EXPECT_EQ(HashOf(Words(count)), Reference(Words(count)));
}

TEST(PayloadHash, SeesEveryWordAndItsPlace) {
  const std::vector<std::uint32_t> words = Words(1001);
  std::set<std::uint64_t> seen{HashOf(words)};
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto changed = words;
    changed[i] ^= 0x8000'0000U;  // a sign
    EXPECT_TRUE(seen.insert(HashOf(changed)).second) << i;
    if (i == 0) continue;
    changed = words;
    std::swap(changed[i], changed[i - 1]);
    EXPECT_TRUE(seen.insert(HashOf(changed)).second) << i;
  }
  auto longer = words;
  longer.push_back(0);
  EXPECT_TRUE(seen.insert(HashOf(longer)).second);
}

TEST(PayloadHash, DoesNotDependOnThePieces) {
  const std::vector<std::uint32_t> words = Words(1001);
  ArrayHash hash;
  hash.AddWords(words.data(), 0);
  hash.AddWords(words.data(), 2);
  hash.AddWords(words.data() + 2, 998);
  hash.AddWords(words.data() + 1000, 1);
  EXPECT_EQ(hash.value(), HashOf(words));
}

TEST(PayloadHash, IsOfTheNumbersThatHalvesDecodeTo) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const std::size_t count : {1U, 2U, 4095U, 10'001U}) {
      std::vector<float> wide(count);
      for (std::size_t i = 0; i < count; ++i)
        wide[i] = static_cast<float>(static_cast<int>(i % 255) - 128) / 64;
      std::vector<std::byte> wire(count * BytesOf(type));
      Narrow(wide, type, wire.data());
      ArrayHash all;
      EXPECT_EQ(FirstNonFinite(wire.data(), type, count, &all), std::nullopt);
      ArrayHash expected;
      expected.AddWords(wide.data(), count);  // all of them are halves exactly
      EXPECT_EQ(all.value(), expected.value()) << ToString(type) << " " << count;
    }
  }
}

TEST(PayloadHash, JoinsItsArraysInOrder) {
  const std::array<std::uint64_t, 2> arrays{1, 2};
  const std::array<std::uint64_t, 2> swapped{2, 1};
  EXPECT_NE(PayloadHash(1, arrays), PayloadHash(1, swapped));
  EXPECT_NE(PayloadHash(1, arrays), PayloadHash(2, arrays));
  EXPECT_EQ(PayloadHash(1, arrays), PayloadHash(1, arrays));
}

}  // namespace
}  // namespace slotwise
