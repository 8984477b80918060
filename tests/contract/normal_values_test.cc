// Normal initial values are the quantiles of Philox's words, within the error of std::erfc in double, and
// have the same bytes on every backend.
#include <cmath>

#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

TableOptions NormalOptions(std::uint32_t dim, float mean, float deviation) {
  TableOptions options = MakeOptions(dim);
  options.initializer = {
      .seed = 0xFEDC'BA98'7654'3210, .kind = InitializerKind::kNormal, .mean = mean, .deviation = deviation};
  return options;
}

// The x with Φ(x) = p, by bisection of a library's Φ.
double Quantile(double p) {
  double low = -9;
  double high = 9;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Element j of `key`: the quantile in the middle of the interval that 23 bits of its Philox word stand for.
double StandardNormal(std::uint64_t seed, std::uint64_t key, std::uint32_t j) {
  const auto words =
      OraclePhilox({static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32), j / 4, 0},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return Quantile((static_cast<double>(words[j % 4] >> 9) + 0.5) * 0x1p-23);
}

class NormalValues : public ContractTest {
 protected:
  // On a Cluster, or all on one Device.
  template <class Place>
  std::vector<ExportedRow> Rows(Place& place, const TableOptions& options,
                                const std::vector<std::uint64_t>& keys, int ranks = 1) {
    CheckedTable table(place, options, ranks);
    EXPECT_TRUE(table.shards().Lookup(OneBag(keys), LookupMode::kTrain).ok());
    return table.shards().Export();
  }
};
SLOTWISE_ON_EVERY_BACKEND(NormalValues);

TEST_P(NormalValues, AreTheQuantilesOfPhiloxsWords) {
  using Parameters = std::pair<float, float>;
  for (const auto& [mean, deviation] : {Parameters{0.0F, 1.0F}, {0.25F, 0.01F}, {-3.0F, 20.0F}}) {
    SCOPED_TRACE("mean " + std::to_string(mean) + ", deviation " + std::to_string(deviation));
    const TableOptions options = NormalOptions(50, mean, deviation);
    std::vector<std::uint64_t> keys = KeyRange(0, 400);
    keys.insert(keys.end(), SpecialKeys().begin(), SpecialKeys().end());
    const double tolerance = 2e-5 * deviation + 1e-7 * std::abs(mean);
    for (const ExportedRow& row : Rows(cluster(), options, keys)) {
      for (std::uint32_t j = 0; j < 50; ++j) {
        const double standard = StandardNormal(options.initializer.seed, Value(row.key), j);
        ASSERT_NEAR(row.values[j], mean + deviation * standard, tolerance)
            << "element " << j << " of key " << Value(row.key);
      }
    }
  }
}

TEST_P(NormalValues, HaveTheMomentsOfTheirDistribution) {
  constexpr std::uint32_t kDim = 100;
  constexpr double kCount = 100'000;
  const float mean = 0.5F;
  const float deviation = 2.0F;
  double sums[5] = {};
  double largest = 0;
  for (const ExportedRow& row : Rows(cluster(), NormalOptions(kDim, mean, deviation), KeyRange(0, 1000))) {
    for (const float value : row.values) {
      const double x = (double{value} - mean) / deviation;
      double power = 1;
      for (double& sum : sums) {
        sum += power / kCount;
        power *= x;
      }
      largest = std::max(largest, std::abs(x));
    }
  }
  // Five standard errors each: √(1, 2, 15, 96) / √count.
  const double error = 5 / std::sqrt(kCount);
  EXPECT_EQ(std::round(sums[0] * kCount), kCount);
  EXPECT_NEAR(sums[1], 0.0, error);
  EXPECT_NEAR(sums[2], 1.0, error * std::sqrt(2.0));
  EXPECT_NEAR(sums[3], 0.0, error * std::sqrt(15.0));
  EXPECT_NEAR(sums[4], 3.0, error * std::sqrt(96.0));
  EXPECT_GT(largest, 3.8);
  EXPECT_LT(largest, 5.5);
}

TEST_P(NormalValues, AreTheSameBytesOnEveryBackendAndAnyNumberOfShards) {
  const auto first_backend = Backends().front().make_device();
  for (const std::uint32_t dim : {1, 3, 17, 130}) {
    const TableOptions options = NormalOptions(dim, 0.1F, 0.7F);
    const std::vector<std::uint64_t> keys = KeyRange(1'000'000, 5000);
    const std::vector<ExportedRow> expected = Rows(*first_backend, options, keys);
    for (const int ranks : cluster().RanksOf({1, 3})) {
      SCOPED_TRACE("dim " + std::to_string(dim) + ", " + std::to_string(ranks) + " ranks");
      ExpectSameRows(Rows(cluster(), options, keys, ranks), expected);
    }
  }
}

TEST_P(NormalValues, AreTheMeanWhenTheDeviationIsZero) {
  for (const ExportedRow& row : Rows(cluster(), NormalOptions(8, 0.75F, 0.0F), KeyRange(0, 500))) {
    ASSERT_EQ(row.values, std::vector<float>(8, 0.75F));
  }
}

TEST_P(NormalValues, AreTrainedLikeAnyOthers) {
  for (const auto kind : kEveryOptimizer) {
    SCOPED_TRACE(ToString(kind));
    TableOptions options = NormalOptions(9, 0.0F, 0.1F);
    options.optimizer = MakeOptions(9, Combiner::kSum, kind).optimizer;
    CheckedTable table(cluster(), options, 2);
    Random random(89);
    for (int step = 0; step < 4; ++step) {
      table.PushRandom(RandomBatch(random, {.bags = 60, .max_bag = 8, .distinct_keys = 300}), random);
      table.Lookup(RandomBatch(random, {.bags = 60, .max_bag = 8, .distinct_keys = 400}), LookupMode::kTrain);
    }
    table.ExpectRowsMatch();
  }
}

}  // namespace
}  // namespace slotwise::test
