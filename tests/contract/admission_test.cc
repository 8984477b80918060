// A push gives rows to the keys that the table's admission admits and to no others, and counts the others in
// the candidates' table, byte for byte as the oracle does.
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/eviction_place.h"
#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {
namespace {

class Admission : public ContractTest {
 protected:
  // A rank's shard of the table, and of its candidates.
  struct Shards {
    std::unique_ptr<Shard> rows;
    std::unique_ptr<Shard> candidates;  // null if there are none
  };

  void Make(const TableOptions& options, int ranks) {
    options_ = options;
    const BucketMap owners = EvenBucketMap(ranks);
    ranks_.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      const ShardPlace place{Rank{rank}, ranks, owners, kTestSecret};
      Shards& of_rank = ranks_.emplace_back();
      of_rank.rows = std::move(*device().MakeShard(options, place));
      if (options.has_candidates())
        of_rank.candidates = std::move(*device().MakeShard(CandidatesOf(options), place));
    }
    oracle_.emplace(options, std::vector<int>(owners.begin(), owners.end()));
  }

  void Push(const Batch& batch, const std::vector<float>& gradients) {
    ASSERT_TRUE(oracle_->Push(batch, gradients));
    const StepScalars scalars = ScalarsOfStep(options_.optimizer, ++step_);
    const EvictionOrder order = EvictionOrder::Of(options_, step_);
    DeviceBatch on_device(device(), batch);
    DeviceArray<float> values(device(), std::span(gradients));
    for (const Shards& of_rank : ranks_) {
      auto prepared = of_rank.rows->PreparePush(on_device.View(), {step_, of_rank.candidates.get()}).Finish();
      ASSERT_TRUE(prepared.ok()) << prepared.status().message();
      CandidateKeys keys;
      std::vector<InsertedBatch> counted;
      if (of_rank.candidates) {
        keys = prepared->Candidates();
        auto counts = of_rank.candidates->PreparePush(keys.absent).Insert(step_);
        ASSERT_TRUE(counts.ok()) << counts.status().message();
        counted.push_back(std::move(*counts));
      }
      const std::uint64_t before = of_rank.rows->Usage().rows;
      const NewRows said = prepared->new_rows();
      const std::uint64_t exactly = prepared->ExactNewRows();
      InsertedBatch inserted = std::move(*prepared).Insert(order.OfNew());
      EXPECT_EQ(of_rank.rows->Usage().rows, before + exactly);
      ExpectHolds(said, exactly);
      std::move(inserted).Update(values.data(), scalars);
      if (counted.empty()) continue;
      std::move(counted.front()).Touch(step_);
      if (!keys.admitted.keys.empty()) std::move(*of_rank.candidates->PrepareErase(keys.admitted)).Erase();
    }
  }
  void ExpectAsOracle() {
    std::map<std::uint64_t, std::vector<float>> rows;
    std::map<std::uint64_t, Oracle::Candidate> candidates;
    std::uint64_t refused = 0;
    for (const Shards& of_rank : ranks_) {
      refused += of_rank.rows->Usage().refused_keys;
      for (ExportedRow& row : ExportOf(*of_rank.rows, options_)) rows[Value(row.key)] = std::move(row.values);
      if (!of_rank.candidates) continue;
      for (const ExportedRow& row : ExportOf(*of_rank.candidates, CandidatesOf(options_))) {
        const OccurrenceScore score = OccurrenceScore::Of(ScoreOf(&row.values[1]));
        candidates[Value(row.key)] = {score.count, score.step};
        EXPECT_EQ(row.values[0], 0.0F);
      }
    }
    std::map<std::uint64_t, std::vector<float>> expected;
    for (const ExportedRow& row : ExportOf(*oracle_)) expected[Value(row.key)] = row.values;
    EXPECT_EQ(rows, expected);
    EXPECT_EQ(candidates, oracle_->candidates());
    EXPECT_EQ(refused, oracle_->refused_keys());
  }
  std::vector<float> Lookup(const Batch& batch, LookupMode mode) {
    const bool or_initial = mode == LookupMode::kTrain && options_.admission.absent == AbsentRows::kInitial;
    std::vector<float> sums(std::size_t{batch.bags()} * options_.dim, 0.0F);
    DeviceBatch on_device(device(), batch);
    for (const Shards& of_rank : ranks_) {
      DeviceArray<float> out(device(), std::vector<float>(sums.size(), -1.0F));
      of_rank.rows->PrepareFind(on_device.View(), or_initial)->Pool({out.data()});
      const std::vector<float> partial = out.Download();
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += partial[i];
    }
    DeviceArray<float> divided(device(), std::span<const float>(sums));
    ranks_.front().rows->DivideBags(device().WorkStream(), on_device.offsets.span(),
                                    batch.weights.empty() ? nullptr : on_device.weights.data(),
                                    divided.data());
    return divided.Download();
  }
  void ExpectLookupsAsOracle(const Batch& batch) {
    for (const LookupMode mode : {LookupMode::kTrain, LookupMode::kEval}) {
      EXPECT_TRUE(SameBytes(Lookup(batch, mode), *oracle_->Lookup(batch, mode), options_.dim));
    }
  }

  TableOptions options_;
  std::vector<Shards> ranks_;
  std::optional<Oracle> oracle_;
  std::uint64_t step_ = 0;
};
SLOTWISE_ON_EVERY_BACKEND(Admission);

TEST_P(Admission, FollowsTheOracleThroughAnyPushes) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  const std::uint64_t seed = Seed(20261129);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const int ranks : {1, 3}) {
    for (const OptimizerKind optimizer : {OptimizerKind::kSgd, OptimizerKind::kRowWiseAdaGrad}) {
      for (const AdmissionOptions& admission :
           {AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 1},
            AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 2},
            AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 9, .absent = AbsentRows::kZeros},
            AdmissionOptions{.kind = AdmissionKind::kProbability, .probability = 0.3F},
            AdmissionOptions{.kind = AdmissionKind::kProbability, .probability = 1.0F}}) {
        const Combiner combiner =
            random.OneOf(std::vector<Combiner>(kEveryCombiner.begin(), kEveryCombiner.end()));
        TableOptions options = MakeOptions(random.OneIn(2) ? 5 : 8, combiner, optimizer);
        options.admission = admission;
        if (random.OneIn(2)) options.eviction.score = ScoreKind::kLfu;
        SCOPED_TRACE(std::string(ToString(admission.kind)) + " on " + std::to_string(ranks));
        step_ = 0;
        Make(options, ranks);
        for (int push = 0; push < 12; ++push) {
          Batch batch = RandomBatch(random, {.bags = 40, .max_bag = 6, .distinct_keys = 90});
          if (random.OneIn(2)) AddRandomWeights(random, batch);
          ExpectLookupsAsOracle(batch);
          Push(batch, RandomGradients(random, std::size_t{batch.bags()} * options.dim));
          ExpectLookupsAsOracle(batch);
          ASSERT_FALSE(HasFailure()) << push;
        }
        ExpectAsOracle();
        if (admission.threshold == 9) {
          EXPECT_GT(oracle_->candidates().size(), 0U);
          EXPECT_GT(oracle_->rows().size(), 0U);
          EXPECT_GT(oracle_->refused_keys(), 0U);
        }
      }
    }
  }
}

TEST_P(Admission, AppliesThePushThatReachesTheThresholdWhole) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  TableOptions options = MakeIntegerOptions(4);
  options.admission = {.kind = AdmissionKind::kFrequency, .threshold = 3};
  Make(options, 1);
  const auto push = [&](const std::vector<std::uint64_t>& keys) {
    Push(OneKeyABag(keys), std::vector<float>(keys.size() * 4, 1.0F));
  };
  push({7, 8});
  push({7});
  EXPECT_EQ(ranks_.front().rows->Usage().rows, 0U);
  push({7, 7, 8});  // 7 has occurred 4 times, 8 twice
  EXPECT_EQ(ranks_.front().rows->Usage().rows, 1U);
  EXPECT_EQ(Lookup(OneKeyABag({7}), LookupMode::kEval), std::vector<float>(4, 1.0F)) << "3 less 2 gradients";
  EXPECT_EQ(Lookup(OneKeyABag({8}), LookupMode::kEval), std::vector<float>(4, 0.0F));
  EXPECT_EQ(Lookup(OneKeyABag({8}), LookupMode::kTrain), std::vector<float>(4, 3.0F)) << "its initial values";
  EXPECT_EQ(ranks_.front().rows->Usage().rows, 1U) << "a lookup inserts nothing";
  ExpectAsOracle();
  push({8, 9});
  EXPECT_EQ(ranks_.front().rows->Usage().rows, 2U);
  EXPECT_EQ(ranks_.front().candidates->Usage().rows, 1U) << "9 alone is counted: 7 and 8 have rows";
  ExpectAsOracle();
}

// Every key's chance is its own, and another one in each step.
TEST_P(Admission, ByProbabilityShutsNoKeyOut) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  TableOptions options = MakeIntegerOptions(4);
  options.admission = {.kind = AdmissionKind::kProbability, .probability = 0.25F};
  Make(options, 1);
  constexpr std::uint64_t kKeys = 4000;
  const Batch batch = OneKeyABag(KeyRange(1, kKeys));
  double left = kKeys;
  for (int push = 0; push < 8; ++push) {
    Push(batch, std::vector<float>(kKeys * 4, 1.0F));
    left *= 0.75;
    const auto absent = static_cast<double>(kKeys - ranks_.front().rows->Usage().rows);
    EXPECT_NEAR(absent, left, 5 * std::sqrt(left)) << push;
  }
  ExpectAsOracle();
}

TEST_P(Admission, NeedsTheCandidatesThatItCounts) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  TableOptions options = MakeIntegerOptions(4);
  options.admission = {.kind = AdmissionKind::kFrequency, .threshold = 3};
  Make(options, 1);
  DeviceBatch batch(device(), OneKeyABag({1}));
  EXPECT_THROW(ranks_.front().rows->PreparePush(batch.View()), std::logic_error);
}

}  // namespace
}  // namespace slotwise::test
