// Rows of 16-bit numbers are pooled like rows of the floats that they represent.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend/cpu.h"
#include "kernels/body/pool.h"
#include "tests/support/batches.h"

namespace slotwise::body {
namespace {

constexpr std::uint32_t kRows = 40;
constexpr std::uint32_t kState = 3;  // elements of a record behind its values

// Pools every bag of `keys`, each a row's number, or none from kRows on.
template <class Element>
std::vector<float> Pooled(const std::vector<Element>& records, std::uint32_t dim, const test::Batch& batch) {
  std::vector<RowIndex> row_of;
  for (const Key key : batch.keys)
    row_of.push_back(Value(key) < kRows ? RowIndex{static_cast<std::uint32_t>(Value(key))} : kNoRow);
  std::vector<Element> copy = records;
  const RowsOf<Element> rows{copy.data(), nullptr, dim, dim + kState, dim + kState};
  std::vector<float> pooled(std::size_t{batch.bags()} * dim, -1.0F);
  CpuQueue queue(1);
  CpuBackend::ForEachRun(queue, batch.bags(), dim,
                         PoolBags<float, Element>{rows, row_of.data(), batch.offsets.data(),
                                                  batch.weights.empty() ? nullptr : batch.weights.data(),
                                                  nullptr, pooled.data()});
  return pooled;
}

template <class Element>
class RowsOfHalves : public testing::Test {};
using Halves = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(RowsOfHalves, Halves);

TYPED_TEST(RowsOfHalves, ArePooledAsTheFloatsThatTheyStandFor) {
  const std::uint64_t seed = test::Seed(150);
  SCOPED_TRACE(test::SeedNote(seed));
  test::Random random(seed);
  for (const std::uint32_t dim : {1U, 8U, 33U, 128U}) {
    std::vector<TypeParam> halves;
    std::vector<float> floats;
    for (const float value : test::RandomGradients(random, std::size_t{kRows} * (dim + kState))) {
      halves.push_back(TypeParam::Of(value));
      floats.push_back(halves.back().Wide());
    }
    for (const bool weighted : {false, true}) {
      test::Batch batch = RandomBatch(random, {.bags = 60, .max_bag = 9, .distinct_keys = kRows + 5});
      if (weighted) AddRandomWeights(random, batch);
      const std::vector<float> expected = Pooled(floats, dim, batch);
      EXPECT_EQ(Pooled(halves, dim, batch), expected) << "dim " << dim;
      EXPECT_GT(std::accumulate(expected.begin(), expected.end(), 0.0,
                                [](double sum, float x) { return sum + std::abs(x); }),
                1.0);
    }
  }
}

}  // namespace
}  // namespace slotwise::body
