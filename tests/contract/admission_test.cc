// A push gives rows to the keys that the table's admission admits and to no others, and counts the others in
// the candidates' table, byte for byte as the oracle does.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/body/bloom_counter.h"
#include "kernels/eviction_place.h"
#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {
namespace {

AdmissionOptions Bloom(std::uint64_t threshold, std::uint64_t counter_mib = 1) {
  return {.kind = AdmissionKind::kFrequency,
          .threshold = threshold,
          .counter = CounterKind::kBloom,
          .counter_mib = counter_mib};
}

// Returns keys of two buckets, which two ranks own, so that few blocks count them.
std::vector<std::uint64_t> CrowdedKeys(std::size_t count) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; keys.size() < count; ++i) {
    const std::uint64_t bucket = i % 2 == 0 ? 7 : 4000;
    keys.push_back(body::InverseOfMix64(bucket << 52 | OracleMix64(i) >> 12));
  }
  return keys;
}

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
      if (keys.raises.window > 0) {
        std::move(counted.front()).RaiseCounters(keys.raises);
      } else {
        std::move(counted.front()).Touch(step_);
      }
      if (!keys.admitted.keys.empty()) std::move(*of_rank.candidates->PrepareErase(keys.admitted)).Erase();
    }
  }
  void ExpectAsOracle() {
    std::map<std::uint64_t, std::vector<float>> rows;
    std::map<std::uint64_t, Oracle::Candidate> candidates;
    std::map<Oracle::BlockName, Oracle::Block> blocks;
    std::uint64_t refused = 0;
    for (const Shards& of_rank : ranks_) {
      refused += of_rank.rows->Usage().refused_keys;
      for (ExportedRow& row : ExportOf(*of_rank.rows, options_)) rows[Value(row.key)] = std::move(row.values);
      if (!of_rank.candidates) continue;
      if (options_.has_bloom_counter()) {
        blocks.merge(BlocksOf(of_rank));
        continue;
      }
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
    EXPECT_TRUE(blocks == oracle_->blocks());
    EXPECT_EQ(refused, oracle_->refused_keys());
  }
  // Returns the blocks of a rank's Bloom counter.
  std::map<Oracle::BlockName, Oracle::Block> BlocksOf(const Shards& of_rank) {
    std::map<Oracle::BlockName, Oracle::Block> blocks;
    for (const ExportedRow& row : ExportOf(*of_rank.candidates, CandidatesOf(options_))) {
      const std::uint64_t mixed = OracleMix64(Value(row.key));
      Oracle::Block& block = blocks[{OracleBucket(Value(row.key)), mixed % (std::uint64_t{1} << 52)}];
      EXPECT_EQ(row.values.size(), 16U);
      for (std::size_t word = 0; word < 15; ++word) {
        const auto counts = static_cast<std::uint32_t>(row.values[word]);
        EXPECT_EQ(static_cast<float>(counts), row.values[word]);
        EXPECT_LT(counts, 1U << 24);
        for (std::size_t c = 0; c < 3; ++c) block.counts[3 * word + c] = counts >> (8 * c) & 255;
      }
      block.tally = static_cast<std::uint32_t>(row.values[15]);
    }
    return blocks;
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

  void Erase(const std::vector<std::uint64_t>& keys) {
    oracle_->Erase(keys);
    DeviceBatch batch(device(), OneKeyABag(keys));
    for (const Shards& of_rank : ranks_) std::move(*of_rank.rows->PrepareErase(batch.View())).Erase();
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

TEST_P(Admission, FollowsTheOraclesBloomCounter) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  const std::uint64_t seed = Seed(20261130);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  const std::vector<std::uint64_t> crowded = CrowdedKeys(400);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::uint64_t threshold : {1, 2, 3, 9, 40, 255}) {
      TableOptions options = MakeOptions(5, Combiner::kSum, OptimizerKind::kSgd);
      options.admission = Bloom(threshold, 1 + random.Below(3));
      if (random.OneIn(2)) options.eviction.score = ScoreKind::kLfu;
      SCOPED_TRACE("threshold " + std::to_string(threshold) + " on " + std::to_string(ranks));
      step_ = 0;
      Make(options, ranks);
      for (int push = 0; push < 12; ++push) {
        // Some pushes have many occurrences of few keys, so that threads raise the same words at once.
        const bool large = random.OneIn(4);
        Batch batch = RandomBatch(random, {.bags = large ? 3000U : 40U, .max_bag = 6, .distinct_keys = 90});
        const std::uint64_t first = random.Below(300);
        for (Key& key : batch.keys) key = Key{crowded[first + Value(key) % 100]};
        ExpectLookupsAsOracle(batch);
        Push(batch, RandomGradients(random, std::size_t{batch.bags()} * options.dim));
        ExpectAsOracle();
        ASSERT_FALSE(HasFailure()) << push;
        if (random.OneIn(4)) Erase({crowded[first], crowded[first + 50]});
      }
      EXPECT_GT(oracle_->rows().size(), 0U);
      for (const auto& [name, block] : oracle_->blocks()) {
        std::uint64_t all = 0;
        for (const std::uint32_t count : block.counts) all += count;
        EXPECT_LE(all, 3 * std::uint64_t{block.tally});
      }
    }
  }
}

// Returns the ways to choose a key's counters of so many.
double Choices(double counters) { return counters * (counters - 1) * (counters - 2) / 6; }

// The bound of docs/semantics.md, for a key whose other occurrences are too few by `lack`.
double BoundOfFalseAdmission(std::uint32_t tally, std::uint64_t lack) {
  return Choices(std::min<double>(45, std::floor(3.0 * tally / static_cast<double>(lack)))) / Choices(45);
}

// A stream that drifts for ever: no key comes in two pushes, but each push has keys that occur often enough.
TEST_P(Admission, ABloomCounterErrsNoOftenerThanItsBound) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  for (const std::uint64_t threshold : {2, 3, 6}) {
    SCOPED_TRACE(threshold);
    TableOptions options = MakeIntegerOptions(1);
    options.admission = Bloom(threshold);
    Make(options, 1);
    constexpr std::uint64_t kFresh = 30'000, kHeavy = 300;
    const std::uint64_t pushes = 8 * threshold;  // 2.4 times what the blocks count until they halve
    double bound = 0, largest = 0;
    std::uint64_t rows = 0, falsely = 0;
    for (std::uint64_t push = 0; push < pushes; ++push) {
      std::vector<std::uint64_t> keys = KeyRange(1'000'000 * (push + 1), kFresh);
      const std::map<Oracle::BlockName, Oracle::Block> blocks = BlocksOf(ranks_.front());
      for (const std::uint64_t key : keys) {
        const auto found = blocks.find(Oracle::BlockOf(key, 1));
        if (found == blocks.end()) continue;
        ASSERT_LT(found->second.tally, 6 * threshold);
        const double of_key = BoundOfFalseAdmission(found->second.tally, threshold - 1);
        largest = std::max(largest, of_key);
        bound += of_key;
      }
      for (std::uint64_t i = 0; i < kHeavy; ++i)
        keys.insert(keys.end(), threshold, std::uint64_t{1'000'000} * (push + 1) + kFresh + i);
      const Batch batch = OneKeyABag(keys);
      DeviceBatch on_device(device(), batch);
      DeviceArray<float> values(device(), std::vector<float>(keys.size(), 1.0F));
      auto prepared =
          ranks_[0].rows->PreparePush(on_device.View(), {++step_, ranks_[0].candidates.get()}).Finish();
      ASSERT_TRUE(prepared.ok());
      const CandidateKeys counted = prepared->Candidates();
      auto raised = ranks_[0].candidates->PreparePush(counted.absent).Insert(step_);
      ASSERT_TRUE(raised.ok());
      std::move(*prepared).Insert().Update(values.data(), ScalarsOfStep(options_.optimizer, step_));
      std::move(*raised).RaiseCounters(counted.raises);
      const std::uint64_t now = ranks_[0].rows->Usage().rows;
      ASSERT_GE(now - rows, kHeavy) << "a key that has occurred often enough is always admitted";
      falsely += now - rows - kHeavy;
      rows = now;
    }
    EXPECT_LE(ranks_[0].candidates->Usage().rows, CandidatesOf(options).max_rows);
    const double rate = static_cast<double>(falsely) / static_cast<double>(pushes * kFresh);
    RecordProperty("rate_of_threshold_" + std::to_string(threshold), std::to_string(rate));
    std::printf(
        "threshold %d: %.5f of keys admitted when they came first, at most %.5f by the bound, whose "
        "largest is %.4f\n",
        static_cast<int>(threshold), rate, bound / static_cast<double>(pushes * kFresh), largest);
    EXPECT_LE(static_cast<double>(falsely), bound + 5 * std::sqrt(bound));
    EXPECT_LE(largest, BoundOfFalseAdmission(6 * static_cast<std::uint32_t>(threshold) - 1, threshold - 1));
    if (threshold == 2) {
      EXPECT_GT(falsely, 100U) << "the filter does err";
    }
  }
}

// Blocks are rows: a push saves those that an open snapshot has still to read, and marks what it changes.
TEST_P(Admission, SnapshotsAndChangesHaveBlocksOfABloomCounter) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  TableOptions options = MakeIntegerOptions(1);
  options.admission = Bloom(255);
  Make(options, 1);
  Shard& counter = *ranks_.front().candidates;
  ASSERT_TRUE(counter.TrackChanges(10).ok());
  const std::vector<std::uint64_t> crowded = CrowdedKeys(60);
  const auto push = [&](std::size_t keys) {
    Push(OneKeyABag({crowded.begin(), crowded.begin() + static_cast<std::ptrdiff_t>(keys)}),
         std::vector<float>(keys, 1.0F));
  };
  push(60);
  std::map<std::uint64_t, std::vector<float>> before;
  for (const ExportedRow& row : ExportOf(counter, CandidatesOf(options_)))
    before[Value(row.key)] = row.values;
  auto begun = counter.BeginSnapshot({.remember = true, .max_copy_on_write_bytes = 1 << 20});
  ASSERT_TRUE(begun.ok());
  push(1);
  push(60);
  std::vector<float> records(begun->info.rows.size() * BloomCounter::kFloats);
  const auto stream = device().MakeStream();
  begun->snapshot->Read(*stream, begun->info.rows, records.data());
  stream->Wait();
  ASSERT_EQ(begun->info.keys.size(), before.size());
  for (std::size_t i = 0; i < begun->info.keys.size(); ++i) {
    const float* const record = records.data() + i * BloomCounter::kFloats;
    EXPECT_EQ(std::vector<float>(record, record + BloomCounter::kFloats), before[Value(begun->info.keys[i])]);
  }
  begun->snapshot->End(true);
  ExpectAsOracle();

  begun = counter.BeginSnapshot({.changed_only = true, .remember = true});
  EXPECT_EQ(begun->info.keys.size(), before.size());
  begun->snapshot->End(true);
  push(1);
  begun = counter.BeginSnapshot({.changed_only = true, .remember = true});
  EXPECT_EQ(begun->info.keys, std::vector<Key>{body::BlockOf(Key{crowded[0]}, 4)});
  begun->snapshot->End(true);
}

TEST_P(Admission, BlocksAreKeysOfTheirKeysBuckets) {
  if (OverRanks()) GTEST_SKIP() << "this process has all ranks";
  Random random(Seed(20261131));
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t key = random.Bits();
    EXPECT_EQ(body::Mix64(body::InverseOfMix64(key)), key);
    EXPECT_EQ(body::InverseOfMix64(body::Mix64(key)), key);
    for (const std::uint64_t mib : {std::uint64_t{1}, std::uint64_t{3}, BloomCounter::kMaxMib}) {
      const Key block =
          body::BlockOf(Key{key}, static_cast<std::uint32_t>(BloomCounter::BlocksOfBucket(mib)));
      EXPECT_EQ(OracleBucket(Value(block)), OracleBucket(key));
      const Oracle::BlockName name = Oracle::BlockOf(key, mib);
      EXPECT_EQ(OracleMix64(Value(block)), std::uint64_t{name.first} << 52 | name.second);
    }
    const body::Raise raise = body::Raise::Of(Key{key}, 200);
    EXPECT_EQ(raise.to(), 200U);
    EXPECT_EQ((std::array{raise.Place(0), raise.Place(1), raise.Place(2)}), Oracle::CountersOf(key));
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
