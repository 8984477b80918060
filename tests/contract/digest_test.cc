// Equal tables have the same digest, however they came about, and tables that differ anywhere have different
// digests.
#include <algorithm>
#include <set>

#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"

namespace slotwise::test {
namespace {

class Digest : public ContractTest {
 protected:
  std::unique_ptr<TableShards> Table(const TableOptions& options, int wanted_ranks = 1) {
    const int ranks = cluster().RanksOf({wanted_ranks}).front();
    return cluster().MakeShards(options, ranks, EvenBucketMap(ranks));
  }
  // All of it on one shard.
  std::unique_ptr<MultiShard> Whole(const TableOptions& options) {
    return std::make_unique<MultiShard>(std::vector<Device*>{&device()}, options, 1, EvenBucketMap(1));
  }

  // One step with these scalars instead of the options'.
  void Update(MultiShard& table, const Batch& batch, const std::vector<float>& gradients,
              StepScalars scalars) {
    DeviceBatch on_device(device(), batch);
    DeviceArray<float> device_gradients(device(), std::span<const float>(gradients));
    auto inserted = table.shard(0).PrepareInsert(on_device.View()).Insert();
    ASSERT_TRUE(inserted.ok());
    std::move(*inserted).Update(device_gradients.data(), scalars);
  }

  static void ExpectDiffer(const DigestSums& one, const DigestSums& other) {
    EXPECT_NE(one.low, other.low);
    EXPECT_NE(one.high, other.high);
  }
};
SLOTWISE_ON_EVERY_BACKEND(Digest);

TEST_P(Digest, OfNoRowsIsZero) { EXPECT_EQ(Table(MakeOptions(4))->Digest(), (DigestSums{0, 0})); }

TEST_P(Digest, DoesNotDependOnTheOrderOfInsertion) {
  std::vector<std::uint64_t> keys = KeyRange(0, 2000);
  const auto forward = Table(MakeOptions(6, Combiner::kSum, OptimizerKind::kAdam));
  ASSERT_TRUE(forward->Lookup(OneBag(keys), LookupMode::kTrain).ok());

  std::reverse(keys.begin(), keys.end());
  const auto backward = Table(MakeOptions(6, Combiner::kSum, OptimizerKind::kAdam));
  for (std::size_t i = 0; i < keys.size(); i += 100) {
    const std::vector<std::uint64_t> some(keys.begin() + static_cast<std::ptrdiff_t>(i),
                                          keys.begin() + static_cast<std::ptrdiff_t>(i + 100));
    ASSERT_TRUE(backward->Lookup(OneBag(some), LookupMode::kTrain).ok());
  }
  EXPECT_EQ(backward->Digest(), forward->Digest());
  EXPECT_EQ(backward->Digest(), backward->Digest()) << "asked twice";
}

TEST_P(Digest, DoesNotDependOnTheRoomThatTheTableHas) {
  TableOptions roomy = MakeOptions(6);
  roomy.initial_rows = 100'000;
  const auto large = Table(roomy);
  const auto small = Table(MakeOptions(6));
  ASSERT_TRUE(large->Lookup(OneBag(KeyRange(0, 300)), LookupMode::kTrain).ok());
  ASSERT_TRUE(small->Lookup(OneBag(KeyRange(0, 300)), LookupMode::kTrain).ok());
  EXPECT_EQ(large->Digest(), small->Digest());
}

TEST_P(Digest, OfShardsAddsUpToTheWholeTables) {
  const auto whole = Whole(MakeOptions(6));
  ASSERT_TRUE(whole->Lookup(OneBag(KeyRange(0, 5000)), LookupMode::kTrain).ok());
  for (const int ranks : cluster().RanksOf({2, 4, 8})) {
    const auto parts = Table(MakeOptions(6), ranks);
    ASSERT_TRUE(parts->Lookup(OneBag(KeyRange(0, 5000)), LookupMode::kTrain).ok());
    EXPECT_EQ(parts->Digest(), whole->Digest()) << ranks << " shards";
  }
}

TEST_P(Digest, TellsTablesOfOtherKeysApart) {
  TableOptions options = MakeIntegerOptions(3);  // all rows are equal
  std::set<std::uint64_t> low;
  std::set<std::uint64_t> high;
  for (const std::uint64_t key : SpecialKeys()) {
    const auto table = Table(options);
    ASSERT_TRUE(table->Lookup(OneBag({5, key}), LookupMode::kTrain).ok());
    low.insert(table->Digest().low);
    high.insert(table->Digest().high);
  }
  EXPECT_EQ(low.size(), SpecialKeys().size());
  EXPECT_EQ(high.size(), SpecialKeys().size());
}

TEST_P(Digest, ChangesWithAnyOneElement) {
  for (const std::uint32_t dim : {1, 3, 8, 17, 130}) {
    SCOPED_TRACE("dim " + std::to_string(dim));
    std::set<std::uint64_t> low;
    std::set<std::uint64_t> high;
    for (std::uint32_t changed = 0; changed < dim; ++changed) {
      const auto table = Table(MakeIntegerOptions(dim));
      ASSERT_TRUE(table->Lookup(OneBag(KeyRange(0, 10)), LookupMode::kTrain).ok());
      if (changed == 0) {
        low.insert(table->Digest().low);
        high.insert(table->Digest().high);
      }
      std::vector<float> gradients(dim, 0.0F);
      gradients[changed] = 0x1p-22F;  // the last bit of a 3
      ASSERT_TRUE(table->Push(OneBag({7}), gradients).ok());
      low.insert(table->Digest().low);
      high.insert(table->Digest().high);
    }
    EXPECT_EQ(low.size(), dim + 1);
    EXPECT_EQ(high.size(), dim + 1);
  }
}

TEST_P(Digest, ChangesWithTheOptimizersStateAlone) {
  // Of those whose state moves at a rate of 0.
  for (const auto kind : {OptimizerKind::kAdaGrad, OptimizerKind::kRowWiseAdaGrad, OptimizerKind::kRmsProp,
                          OptimizerKind::kAdam}) {
    SCOPED_TRACE(ToString(kind));
    TableOptions options = MakeOptions(2, Combiner::kSum, kind);
    options.optimizer.beta1 = 0.0F;  // Adam's m is the last gradient
    const auto table = Whole(options);
    ASSERT_TRUE(table->Lookup(OneBag({1, 2}), LookupMode::kTrain).ok());
    const DigestSums before = table->Digest();
    const std::vector<ExportedRow> rows_before = table->Export();
    // At a rate of 0 only the state moves.
    Update(*table, OneBag({1}), {1.0F, 0.0F}, {.learning_rate = 0, .adam_rate = 0});
    const DigestSums once = table->Digest();
    Update(*table, OneBag({1}), {1.0F, 0.0F}, {.learning_rate = 0, .adam_rate = 0});  // m stays, v moves
    EXPECT_EQ(table->Export()[0].values[0], rows_before[0].values[0]);
    ExpectDiffer(once, before);
    ExpectDiffer(table->Digest(), once);
    ExpectDiffer(table->Digest(), before);
  }
}

TEST_P(Digest, SeesWhichElementAndWhichKeyAValueBelongsTo) {
  const auto digest_after = [&](const Batch& batch, const std::vector<float>& gradients) {
    const auto table = Table(MakeIntegerOptions(2));
    EXPECT_TRUE(table->Push(batch, gradients).ok());
    return table->Digest();
  };
  const DigestSums first = digest_after(OneKeyABag({1, 2}), {5, 0, 0, 7});
  ExpectDiffer(first, digest_after(OneKeyABag({1, 2}), {0, 5, 0, 7}));
  ExpectDiffer(first, digest_after(OneKeyABag({2, 1}), {5, 0, 0, 7}));
  ExpectDiffer(first, digest_after(OneKeyABag({1, 2}), {0, 7, 5, 0}));
  ExpectDiffer(digest_after(OneKeyABag({1, 2}), {1, 1, 1, 1}),
               digest_after(OneKeyABag({1, 2}), {2, 2, 0, 0}));
  EXPECT_EQ(first, digest_after(OneKeyABag({2, 1}), {0, 7, 5, 0}));
}

TEST_P(Digest, IsTheSameOnEveryBackend) {
  const auto digest_of = [](auto& place, OptimizerKind kind) {
    CheckedTable table(place, MakeOptions(10, Combiner::kMean, kind), 2);
    Random random(101);
    for (int step = 0; step < 3; ++step) {
      table.PushRandom(RandomBatch(random, {.bags = 200, .distinct_keys = 2000}), random);
    }
    return table.shards().Digest();
  };
  const auto first_backend = Backends().front().make_device();
  for (const auto kind : kEveryOptimizer) {
    EXPECT_EQ(digest_of(cluster(), kind), digest_of(*first_backend, kind)) << ToString(kind);
  }
}

}  // namespace
}  // namespace slotwise::test
