// Tests both output distributions, over the ranks that mpirun starts and on each kind of device of this
// machine. Every rank holds the same batch and checks its own bags and rows.
#include "server/engine/output_distributor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/batches.h"
#include "tests/support/checked_table.h"
#include "tests/support/device_array.h"
#include "tests/support/device_batch.h"
#include "tests/support/device_kinds.h"
#include "tests/support/oracle.h"
#include "tests/support/same_bytes.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

using Counts = std::vector<std::size_t>;

// --- which way

DistributedBags Travelling(std::size_t ranks, std::size_t bags_a_rank, std::size_t keys_a_bag) {
  return {Counts(ranks, bags_a_rank), ranks * bags_a_rank * keys_a_bag, 16};
}

// Every operation as fast as the others, and memory four times as fast.
constexpr DistributionCosts kEvenCosts{1e-10, 1e-10, 1e-10, 0.25e-10};

TEST(TheFasterWay, IsThatOfOwnedBagsIfKeysAreFewAndRanksMany) {
  EXPECT_EQ(FasterWay(Travelling(8, 1000, 1), kEvenCosts), OutputDistribution::kOwnedBags);
  EXPECT_EQ(FasterWay(Travelling(64, 1000, 10), kEvenCosts), OutputDistribution::kOwnedBags);
}

TEST(TheFasterWay, IsThatOfAllBagsIfEachHasKeysOfMostRanks) {
  EXPECT_EQ(FasterWay(Travelling(2, 1000, 10), kEvenCosts), OutputDistribution::kAllBags);
  EXPECT_EQ(FasterWay(Travelling(8, 1000, 100), kEvenCosts), OutputDistribution::kAllBags);
}

TEST(TheFasterWay, DependsOnWhatWasMeasured) {
  const DistributedBags bags = Travelling(4, 1000, 2);  // a rank owns keys of 7 in 16
  DistributionCosts costs{.reduce_scatter = 3e-10, .all_gather = 1e-10, .all_to_all = 3e-10, .copy = 1e-10};
  EXPECT_EQ(FasterWay(bags, costs), OutputDistribution::kOwnedBags);  // 3.5 and 4
  costs.all_to_all = 4e-10;
  EXPECT_EQ(FasterWay(bags, costs), OutputDistribution::kAllBags);  // 4.375 and 4
  EXPECT_EQ(FasterWay(bags, {}), OutputDistribution::kAllBags) << "nothing was measured";
}

// What travels there counts by its bytes, half of those that travel back.
TEST(TheFasterWay, CountsThePartialSumsBytes) {
  const DistributedBags bags = Travelling(4, 1000, 2);  // a rank owns keys of 7 in 16
  const DistributionCosts there{
      .reduce_scatter = 4e-10, .all_gather = 1e-10, .all_to_all = 4e-10, .copy = 1e-10};
  EXPECT_EQ(FasterWay(bags, there), OutputDistribution::kOwnedBags);  // 4.375 and 5
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    EXPECT_EQ(FasterWay(bags, there, type), OutputDistribution::kAllBags);  // 3.28 and 3
  }
  const DistributionCosts back{
      .reduce_scatter = 1e-10, .all_gather = 2e-10, .all_to_all = 3e-10, .copy = 0.5e-10};
  EXPECT_EQ(FasterWay(bags, back), OutputDistribution::kAllBags);  // 3.06 and 3
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    EXPECT_EQ(FasterWay(bags, back, type), OutputDistribution::kOwnedBags);  // 2.3 and 2.5
  }
}

TEST(TheFasterWay, IsThatOfAllBagsIfTheOthersCannotBePlanned) {
  EXPECT_EQ(FasterWay(Travelling(65, 1000, 1), kEvenCosts), OutputDistribution::kAllBags);
  constexpr std::size_t kTooMany = (std::size_t{1} << 32) / 8;
  EXPECT_EQ(FasterWay(Travelling(8, kTooMany - 1, 1), kEvenCosts), OutputDistribution::kOwnedBags);
  EXPECT_EQ(FasterWay(Travelling(8, kTooMany, 1), kEvenCosts), OutputDistribution::kAllBags);
}

TEST(TheFasterWay, IsSomeWayIfThereAreNoBagsOrNoKeys) {
  EXPECT_EQ(ShareOwned(0, 0, 4), 0);
  EXPECT_EQ(ShareOwned(100, 0, 4), 0);
  EXPECT_EQ(ShareOwned(100, 300, 1), 1);
  EXPECT_EQ(FasterWay(Travelling(4, 0, 0), kEvenCosts), OutputDistribution::kOwnedBags);
  EXPECT_EQ(FasterWay(Travelling(4, 0, 0), {}), OutputDistribution::kAllBags);
}

TEST(TheShareOfOwnedBags, IsWhatOneCounts) {
  constexpr std::uint64_t kSeed = 17;
  SCOPED_TRACE(SeedNote(kSeed));
  Random random(kSeed);
  constexpr std::size_t kBags = 2000;
  for (const std::size_t ranks : {2, 3, 8, 64}) {
    const BucketMap owners = EvenBucketMap(static_cast<int>(ranks));
    for (const std::size_t keys_a_bag : {1, 2, 5, 30}) {
      std::size_t owned = 0;  // over all ranks
      for (std::size_t bag = 0; bag < kBags; ++bag) {
        std::vector<bool> owns(ranks);
        for (std::size_t k = 0; k < keys_a_bag; ++k) owns[owners[OracleBucket(random.Bits())]] = true;
        owned += static_cast<std::size_t>(std::ranges::count(owns, true));
      }
      EXPECT_NEAR(ShareOwned(kBags, kBags * keys_a_bag, ranks),
                  static_cast<double>(owned) / static_cast<double>(ranks * kBags), 0.015)
          << keys_a_bag << " keys a bag, " << ranks << " ranks";
    }
  }
}

// --- the ways

// A rank's slice of a table, and the batch that it holds as every rank does.
class Slice {
 public:
  Slice(Device& device, const TableOptions& options, const ShardPlace& place)
      : device_(device), shard_(std::move(*device.MakeShard(options, place))) {}

  Shard& shard() { return *shard_; }

  FoundBatch Take(const Batch& batch, LookupMode mode) {
    batch_ = std::make_unique<DeviceBatch>(device_, batch);
    if (mode == LookupMode::kTrain) return std::move(*shard_->PrepareInsert(batch_->View()).Insert());
    return std::move(*shard_->PrepareFind(batch_->View()));
  }
  InsertedBatch TakeToPush(const Batch& batch) {
    batch_ = std::make_unique<DeviceBatch>(device_, batch);
    return std::move(*shard_->PreparePush(batch_->View()).Insert());
  }

  // REQUIRES: a batch was taken.
  BatchView batch() { return batch_->View(); }

 private:
  Device& device_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<DeviceBatch> batch_;
};

// A table: this rank's slice of it, another one that is to have the same bytes, and its oracle.
struct SlicedTable {
  const TableOptions options;
  Slice slice;
  Slice other;
  Oracle oracle;
};

class ABagTravel : public testing::TestWithParam<DeviceKind> {
 protected:
  static void TearDownTestSuite() { exchanges_.clear(); }

  void SetUp() override {
    if (!OfThisKind(true).device) GTEST_SKIP() << "this machine has no GPU";
    TravelAs(DataType::kFloat32);
  }

  // Partial sums travel as `type` from now on. Halves are added in rank order even where floats are not.
  void TravelAs(DataType type) {
    const KeptExchange& kept = OfThisKind(type == DataType::kFloat32);
    collective_ = kept.collective.get();
    device_ = kept.device.get();
    exchange_ = kept.exchange.get();
    travel_ =
        std::make_unique<OutputDistributor>(*device_, *collective_, *exchange_, DistributionOptions{type});
    partials_ = ranks() == 1 ? DataType::kFloat32 : type;
  }

  std::size_t me() const { return static_cast<std::size_t>(Value(collective_->rank())); }
  std::size_t ranks() const { return static_cast<std::size_t>(collective_->size()); }

  SlicedTable MakeTable(const TableOptions& options) {
    return {options, Slice(*device_, options, MyPlace()), Slice(*device_, options, MyPlace()),
            OracleOf(options)};
  }
  BucketMap Owners() const { return EvenBucketMap(collective_->size()); }
  ShardPlace MyPlace() const { return {collective_->rank(), collective_->size(), Owners(), kTestSecret}; }
  Oracle OracleOf(const TableOptions& options) const {
    const BucketMap owners = Owners();
    Oracle oracle(options, std::vector<int>(owners.begin(), owners.end()));
    oracle.RoundPartialSums(partials_);
    return oracle;
  }

  // Shares of `bags` bags, as uneven as it comes; every third of several ranks has none.
  Counts RandomShares(Random& random, std::size_t bags) const {
    Counts shares(ranks(), 0);
    for (std::size_t r = 0; r + 1 < ranks(); ++r) {
      shares[r] = r % 3 == 1 ? 0 : random.Below(bags + 1);
      bags -= shares[r];
    }
    shares.back() = bags;
    return shares;
  }
  // Of `values`, `width` elements a bag, those of this rank's bags.
  template <class T>
  std::span<const T> Mine(const Counts& bags_of, std::span<const T> values, std::size_t width = 1) const {
    const auto before =
        std::accumulate(bags_of.begin(), bags_of.begin() + static_cast<std::ptrdiff_t>(me()), std::size_t{0});
    return values.subspan(before * width, bags_of[me()] * width);
  }

  // This rank's bags, divided as the combiner wants.
  std::vector<float> Pooled(Slice& slice, FoundBatch& batch, const TableOptions& options,
                            const Counts& bags_of, OutputDistribution way) {
    const std::vector<float> unwritten(bags_of[me()] * options.dim, std::numeric_limits<float>::quiet_NaN());
    DeviceArray<float> pooled(*device_, std::span(unwritten));
    DistributionArrays arrays(*device_);
    travel_->Pool(batch, {bags_of, slice.batch().keys.size(), options.dim}, way, arrays, pooled.data());
    const auto [keys, offsets, weights] = slice.batch();
    const std::span<const std::uint32_t> begins = Mine(bags_of, offsets);
    slice.shard().DivideBags(device_->WorkStream(), {begins.data(), begins.size() + 1},
                             weights.empty() ? nullptr : weights.data(), pooled.data());
    return pooled.Download();
  }

  // Looks the batch up both ways, in either order.
  void CheckLookup(SlicedTable& table, const Batch& batch, const Counts& bags_of,
                   LookupMode mode = LookupMode::kTrain) {
    const std::uint32_t dim = table.options.dim;
    const std::vector<float> expected = *table.oracle.Lookup(batch, mode);
    const std::span<const float> mine = Mine(bags_of, std::span(expected), dim);
    FoundBatch taken = table.slice.Take(batch, mode);
    for (const OutputDistribution way :
         {OutputDistribution::kAllBags, OutputDistribution::kOwnedBags, OutputDistribution::kAllBags}) {
      EXPECT_TRUE(
          SameBytes(Pooled(table.slice, taken, table.options, bags_of, way), {mine.begin(), mine.end()}, dim))
          << (way == OutputDistribution::kAllBags ? "all bags" : "owned bags");
    }
  }

  // Pushes to a slice whose gradients travel to those who own keys, and to one where every rank has all of
  // them.
  void CheckPush(SlicedTable& table, const Batch& batch, const Counts& bags_of,
                 const std::vector<float>& gradients) {
    ASSERT_TRUE(table.oracle.Push(batch, gradients));
    const StepScalars scalars = ScalarsOfStep(table.options.optimizer, table.oracle.step());
    InsertedBatch travelling = table.slice.TakeToPush(batch);
    DeviceArray<float> mine(*device_, Mine(bags_of, std::span(gradients), table.options.dim));
    DistributionArrays arrays(*device_);
    travel_->Update(std::move(travelling), {bags_of, batch.keys.size(), table.options.dim}, mine.data(),
                    scalars, arrays);
    InsertedBatch whole = table.other.TakeToPush(batch);
    DeviceArray<float> all(*device_, std::span(gradients));
    std::move(whole).Update(all.data(), scalars);
    EXPECT_EQ(table.slice.shard().Digest(), table.other.shard().Digest());
  }
  // Pushes any gradients of a batch in any shares, and looks it up.
  void CheckStep(SlicedTable& table, const Batch& batch, Random& random) {
    const Counts shares = RandomShares(random, batch.bags());
    CheckPush(table, batch, shares, RandomGradients(random, std::size_t{batch.bags()} * table.options.dim));
    CheckLookup(table, batch, shares, LookupMode::kEval);
  }

  Collective* collective_ = nullptr;
  Device* device_ = nullptr;
  Exchange* exchange_ = nullptr;
  std::unique_ptr<OutputDistributor> travel_;
  DataType partials_ = DataType::kFloat32;

 private:
  // Kept from test to test: it takes NCCL a second to connect ranks.
  struct KeptExchange {
    std::unique_ptr<Collective> collective = MakeMpiCollective();
    std::unique_ptr<Device> device = GetParam().make(collective->local_rank());  // null: there is none
    std::unique_ptr<Exchange> exchange;
  };
  static const KeptExchange& OfThisKind(bool deterministic) {
    const auto [at, is_new] = exchanges_.try_emplace({GetParam().name, deterministic});
    KeptExchange& kept = at->second;
    if (is_new && kept.device) {
      kept.exchange = std::move(*MakeExchange(*kept.device, kept.device->WorkStream(), *kept.collective,
                                              {.deterministic = deterministic}));
    }
    return kept;
  }
  inline static std::map<std::pair<std::string, bool>, KeptExchange> exchanges_;
};

constexpr std::array kEveryType{DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};

INSTANTIATE_TEST_SUITE_P(OnEveryKindOfDevice, ABagTravel, testing::Values(kCpu, kApart, kApartDrawn, kCuda),
                         [](const auto& test) { return std::string(test.param.name); });

// A batch with bags of every size up to one that all ranks own keys of, and empty ones.
Batch SomeBatch(Random& random, bool weighted) {
  Batch batch = RandomBatch(random, {.bags = static_cast<std::uint32_t>(random.Below(80)),
                                     .max_bag = 1 + static_cast<std::uint32_t>(random.Below(24))});
  if (weighted) AddRandomWeights(random, batch);
  return batch;
}

TEST_P(ABagTravel, PoolsTheSameBytesBothWays) {
  const std::uint64_t seed = Seed(3);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const DataType type : kEveryType) {
    TravelAs(type);
    for (const Combiner combiner : kEveryCombiner) {
      SCOPED_TRACE(std::string(ToString(type)) + ", " + std::string(ToString(combiner)));
      SlicedTable table = MakeTable(MakeOptions(12, combiner));
      for (int turn = 0; turn < 12; ++turn) {
        // The first finds nothing; keys that have no row yet count as zeros.
        const LookupMode mode = turn % 3 == 0 ? LookupMode::kEval : LookupMode::kTrain;
        const Batch batch = SomeBatch(random, turn % 2 == 1);
        CheckLookup(table, batch, RandomShares(random, batch.bags()), mode);
      }
    }
  }
}

// Bags of an odd number of bytes, so that blocks begin anywhere.
TEST_P(ABagTravel, PoolsHalvesOfRowsOfAnyLength) {
  Random random(7);
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    TravelAs(type);
    for (const std::uint32_t dim : {1, 3, 6, 17, 100}) {
      SCOPED_TRACE(std::string(ToString(type)) + ", dim " + std::to_string(dim));
      SlicedTable table = MakeTable(MakeOptions(dim, Combiner::kMean));
      for (int turn = 0; turn < 3; ++turn) {
        const Batch batch = SomeBatch(random, turn == 2);
        CheckLookup(table, batch, RandomShares(random, batch.bags()));
      }
    }
  }
}

TEST_P(ABagTravel, RoundsNothingIfThereIsOneRank) {
  TravelAs(DataType::kBFloat16);
  EXPECT_EQ(travel_->partials(), ranks() == 1 ? DataType::kFloat32 : DataType::kBFloat16);
}

TEST_P(ABagTravel, PoolsWhatOneRankOwnsAlone) {
  SlicedTable table = MakeTable(MakeOptions(5));
  Random random(5);
  const BucketMap owners = Owners();
  // Bag b has keys of rank b mod ranks alone; then all bags have keys of the last rank alone.
  for (const bool of_the_last : {false, true}) {
    Batch batch;
    for (std::size_t b = 0; b < 4 * ranks(); ++b) {
      const std::size_t owner = of_the_last ? ranks() - 1 : b % ranks();
      std::vector<std::uint64_t> keys;
      while (keys.size() < 3) {
        const std::uint64_t key = random.Bits();
        if (owners[OracleBucket(key)] == owner) keys.push_back(key);
      }
      batch.AddBag(keys);
    }
    CheckLookup(table, batch, Counts(ranks(), 4));
  }
}

TEST_P(ABagTravel, MayHaveNothingToBringOfAnyType) {
  const Batch empty_bags({{}, {}, {}, {}, {}});
  for (const DataType type : kEveryType) {
    TravelAs(type);
    SlicedTable table = MakeTable(MakeOptions(8, Combiner::kMean));
    Counts all_at_the_last(ranks(), 0);
    CheckLookup(table, Batch(), all_at_the_last);
    CheckPush(table, Batch(), all_at_the_last, {});
    all_at_the_last.back() = empty_bags.bags();
    CheckLookup(table, empty_bags, all_at_the_last);
    CheckPush(table, empty_bags, all_at_the_last, std::vector<float>(5 * 8, 1.0F));
  }
}

TEST_P(ABagTravel, UpdatesToTheSameBytesAsWithEveryGradientOnEveryRank) {
  const std::uint64_t seed = Seed(4);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const Combiner combiner : kEveryCombiner) {
    for (const OptimizerKind optimizer : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
      SlicedTable table = MakeTable(MakeOptions(12, combiner, optimizer));
      for (int step = 0; step < 6; ++step) CheckStep(table, SomeBatch(random, step % 2 == 1), random);
    }
  }
}

// Between lookups whose sums do not.
TEST_P(ABagTravel, BringsGradientsAsFloatsWhateverPartialSumsTravelAs) {
  Random random(8);
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    TravelAs(type);
    SlicedTable table = MakeTable(MakeOptions(12, Combiner::kSqrtn, OptimizerKind::kAdam));
    for (int step = 0; step < 4; ++step) CheckStep(table, SomeBatch(random, false), random);
  }
}

// A hot key: rows whose sums are trees of blocks, of gradients that came from every rank.
TEST_P(ABagTravel, SumsARowsManyGradientsInTheOrderOfTheBatch) {
  SlicedTable table = MakeTable(MakeOptions(4, Combiner::kSqrtn));
  Random random(6);
  CheckStep(table, RandomBatch(random, {.bags = 3000, .max_bag = 3, .distinct_keys = 40, .hot_percent = 60}),
            random);
}

// As rounds overlap on a GPU: one batch's bags come back, by a stream of their own, while the next batch is
// prepared and its traffic planned. Only what a batch has in its own arrays is safe from the other.
TEST_P(ABagTravel, KeepsBatchesApartWhoseBagsTravelAtOnce) {
  Random random(9);
  const Exchanges exchanges = std::move(*Exchanges::Make(*device_, *collective_, {.deterministic = true}));
  const TableOptions options = MakeOptions(8);
  for (const OutputDistribution way : {OutputDistribution::kOwnedBags, OutputDistribution::kAllBags}) {
    OutputDistributor travel(*device_, *collective_, exchanges.bags());
    Slice slice(*device_, options, MyPlace());
    Oracle oracle = OracleOf(options);

    struct InFlight {
      Batch batch;
      Counts bags_of;
      std::unique_ptr<DeviceBatch> on_device;
      std::unique_ptr<DistributionArrays> arrays;
      std::unique_ptr<DeviceArray<float>> pooled;
      std::vector<float> expected;
    };
    std::vector<InFlight> batches(2);
    for (InFlight& b : batches) {
      b.batch = RandomBatch(random, {.bags = 60, .max_bag = 3});
      b.bags_of = RandomShares(random, b.batch.bags());
      b.on_device = std::make_unique<DeviceBatch>(*device_, b.batch);
      b.arrays = std::make_unique<DistributionArrays>(*device_);
      const std::vector<float> nothing(b.bags_of[me()] * options.dim);
      b.pooled = std::make_unique<DeviceArray<float>>(*device_, std::span<const float>(nothing));
      slice.Take(b.batch, LookupMode::kTrain);
      const std::vector<float> all = *oracle.Lookup(b.batch, LookupMode::kTrain);
      const std::span<const float> mine = Mine(b.bags_of, std::span(all), options.dim);
      b.expected = {mine.begin(), mine.end()};
    }
    for (int turn = 0; turn < 3; ++turn) {  // arrays grow in the first, and growing waits for the device
      for (InFlight& b : batches) {
        auto found = slice.shard().PrepareFind(b.on_device->View());
        ASSERT_TRUE(found.ok());
        travel.Pool(*found, {b.bags_of, b.batch.keys.size(), options.dim}, way, *b.arrays, b.pooled->data());
      }
      travel.stream().Wait();
      for (InFlight& b : batches) {
        EXPECT_TRUE(SameBytes(b.pooled->Download(), b.expected, options.dim)) << "turn " << turn;
        const std::vector<float> unwritten(b.expected.size(), std::numeric_limits<float>::quiet_NaN());
        device_->Upload(b.pooled->data(), unwritten.data(), unwritten.size() * sizeof(float));
        // The next turn pools the same bags: who sends them before they are pooled must not find them here.
        const std::vector<float> not_pooled(std::size_t{b.batch.bags()} * options.dim,
                                            std::numeric_limits<float>::quiet_NaN());
        device_->Upload(b.arrays->sent.data(), not_pooled.data(), not_pooled.size() * sizeof(float));
      }
    }
  }
}

TEST_P(ABagTravel, TravelsTheFasterWayUnlessOneIsGiven) {
  const DistributionCosts dear_sums{.reduce_scatter = 1, .all_gather = 1, .all_to_all = 1e-9, .copy = 1e-9};
  const DistributionCosts dear_bags{.reduce_scatter = 1e-9, .all_gather = 1e-9, .all_to_all = 1, .copy = 1};
  const auto chosen = [&](const DistributionOptions& options) {
    return OutputDistributor(*device_, *collective_, *exchange_, options).Choose(Travelling(ranks(), 100, 1));
  };
  EXPECT_EQ(chosen({}), OutputDistribution::kAllBags) << "nothing was measured";
  EXPECT_EQ(chosen({.costs = dear_sums}), OutputDistribution::kOwnedBags);
  EXPECT_EQ(chosen({.costs = dear_bags}), OutputDistribution::kAllBags);
  EXPECT_EQ(chosen({.costs = dear_sums, .way = OutputDistribution::kAllBags}), OutputDistribution::kAllBags);
  EXPECT_EQ(chosen({.costs = dear_bags, .way = OutputDistribution::kOwnedBags}),
            OutputDistribution::kOwnedBags);
}

TEST_P(ABagTravel, MeasuresTheSameOnEveryRank) {
  for (const DataType type : kEveryType) {
    TravelAs(type);
    const DistributionCosts costs = MeasureDistribution(*device_, *collective_, *exchange_, type);
    const std::array<double, 4> mine{costs.reduce_scatter, costs.all_gather, costs.all_to_all, costs.copy};
    std::vector<std::array<double, 4>> all(ranks());
    collective_->AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    EXPECT_EQ(std::ranges::count(all, mine), static_cast<std::ptrdiff_t>(ranks()));
    for (const double cost : mine) {
      EXPECT_TRUE(ranks() == 1 ? cost == 0 : cost > 0 && std::isfinite(cost)) << cost;
    }
  }
}

}  // namespace
}  // namespace slotwise::test
