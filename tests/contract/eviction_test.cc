// Rows have scores, which every copy of a row has too; and a shard finds, spares and removes the rows that an
// eviction names, whatever the digits of their places.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/body/hash.h"
#include "kernels/eviction_place.h"
#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {
namespace {

using Scores = std::map<std::uint64_t, std::uint64_t>;  // by key

TableOptions Scored(OptimizerKind optimizer, ScoreKind score) {
  TableOptions options = MakeOptions(4, Combiner::kSum, optimizer);
  options.eviction.score = score;
  return options;
}

constexpr std::uint64_t kCount = std::uint64_t{1} << 36;  // of a score that counts, one occurrence

class Eviction : public ContractTest {
 protected:
  void Make(OptimizerKind optimizer, std::uint64_t max_rows = 1 << 20, ScoreKind score = ScoreKind::kStep,
            std::uint64_t half_life = 0) {
    options_ = Scored(optimizer, score);
    options_.eviction.half_life_steps = half_life;
    options_.max_rows = max_rows;
    shard_ = std::move(*device().MakeShard(options_, {Rank{0}, 1, EvenBucketMap(1), kTestSecret}));
  }

  InsertedBatch Insert(DeviceBatch& batch, std::uint64_t score) {
    return std::move(*shard_->PrepareInsert(batch.View()).Insert(score));
  }
  void Lookup(const std::vector<std::uint64_t>& keys, std::uint64_t score) {
    DeviceBatch batch(device(), OneKeyABag(keys));
    Insert(batch, score);
  }
  void Push(const std::vector<std::uint64_t>& keys, std::uint64_t step) {
    DeviceBatch batch(device(), OneKeyABag(keys));
    const std::vector<float> ones(keys.size() * options_.dim, 1.0F);
    DeviceArray<float> gradients(device(), std::span(ones));
    Insert(batch, step).Update(gradients.data(), ScalarsOfStep(options_.optimizer, step));
  }
  // Overwrites rows with values of 2, state of 3, and these scores.
  void Import(const Scores& scores, std::uint64_t score_of_new) {
    std::vector<std::uint64_t> keys;
    std::vector<float> records;
    for (const auto& [key, score] : scores) {
      keys.push_back(key);
      records.insert(records.end(), options_.dim, 2.0F);
      records.insert(records.end(), StateFloats(options_.optimizer.kind, options_.dim), 3.0F);
      std::array<float, 2> bits{};
      std::memcpy(bits.data(), &score, sizeof(score));
      records.insert(records.end(), bits.begin(), bits.end());
    }
    DeviceBatch batch(device(), OneKeyABag(keys));
    DeviceArray<float> values(device(), std::span(records));
    Insert(batch, score_of_new).Assign(values.data(), RecordFloats(options_));
  }
  Scores ScoresOf(Shard& shard) const {
    Scores scores;
    for (const ExportedRow& row : ExportOf(shard, options_)) {
      EXPECT_EQ(row.values.size(), RecordFloats(options_));
      scores[Value(row.key)] = ScoreOf(&row.values[RecordFloats(options_) - 2]);
    }
    return scores;
  }
  Scores ScoresNow() const { return ScoresOf(*shard_); }

  static std::uint64_t Tie(std::uint64_t key) { return body::Mix64(body::Mix64(key)); }
  EvictionOrder Order() const { return EvictionOrder::Of(options_, now_); }
  // Returns what orders a row, by the words of docs/semantics.md.
  std::uint64_t NumberOf(std::uint64_t score) const {
    const ScoreKind kind = options_.eviction.score;
    if (kind == ScoreKind::kStep) return score;
    std::uint64_t count = std::max<std::uint64_t>(score / kCount, 1);
    const std::uint64_t step = score % kCount, half_life = options_.eviction.half_life_steps;
    for (std::uint64_t t = step + 1; half_life > 0 && t <= now_; ++t) count /= t % half_life == 0 ? 2 : 1;
    return count * kCount + (kind == ScoreKind::kStepLfu ? step : 0);
  }

  // Counts a number as include/slotwise/power_histogram.h says, without logarithms or bits.
  static void CountIn(std::vector<std::uint64_t>& buckets, std::uint64_t number) {
    std::size_t bucket = 0;
    for (std::uint64_t first = 1; bucket < kLastBucket && first <= number; first *= 2) ++bucket;
    ++buckets.at(bucket);
  }
  // Returns the age of a row at the step `now_`, by the words of docs/semantics.md.
  std::uint64_t AgeOf(std::uint64_t score) const {
    const std::uint64_t step = options_.eviction.score == ScoreKind::kStep ? score : score % kCount;
    const std::uint64_t steps = now_ == 0 ? 0 : now_ - 1;  // that the table has taken
    return steps > step ? steps - step : 0;
  }
  // Compares what the shard counts of its rows with the scores.
  void CheckAges() {
    std::vector<std::uint64_t> ages(kLastBucket + 1), counts(kLastBucket + 1);
    for (const auto& [key, score] : ScoresNow()) {
      CountIn(ages, AgeOf(score));
      if (options_.eviction.score != ScoreKind::kStep) CountIn(counts, NumberOf(score) / kCount);
    }
    const RowAges counted = shard_->CountAges(Order());
    EXPECT_TRUE(std::ranges::equal(counted.ages.buckets, ages));
    EXPECT_TRUE(std::ranges::equal(counted.counts.buckets, counts));
  }

  // Returns the last of `count` places, as server/engine/evictor.cc finds it.
  std::optional<EvictionPlace> LastOf(std::uint64_t count) {
    std::vector<std::uint64_t> counts(PlacePrefix::kDigits);
    PlacePrefix prefix;
    while (prefix.bits < PlacePrefix::kBits) {
      shard_->CountPlaces(Order(), prefix, counts);
      std::uint32_t digit = 0;
      for (; digit < counts.size() && counts[digit] < count; ++digit) count -= counts[digit];
      if (digit == counts.size()) return std::nullopt;
      prefix = prefix.With(digit);
      if (counts[digit] == count) break;
    }
    return prefix.Last();
  }
  // Evicts `count` rows, but for those of `spared`, and expects what the definition says.
  void EvictAndCheck(std::uint64_t count, const std::vector<std::uint64_t>& spared) {
    const Scores before = ScoresNow();
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> places;
    for (const auto& [key, score] : before) {
      if (std::ranges::find(spared, key) == spared.end()) places.emplace_back(NumberOf(score), Tie(key), key);
    }
    std::ranges::sort(places);
    ASSERT_LE(count, places.size());
    std::uint64_t checksum = 0, sum_of_ages = 0;
    std::vector<std::uint64_t> ages(kLastBucket + 1);
    Scores expected = before;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t key = std::get<2>(places[i]);
      expected.erase(key);
      checksum += body::Mix64(key);
      const std::uint64_t age = AgeOf(before.at(key));
      CountIn(ages, age);
      sum_of_ages += age;
    }
    DeviceBatch batch(device(), OneKeyABag(spared));
    std::move(*shard_->PrepareFind(batch.View())).Protect();
    const auto last = LastOf(count);
    ASSERT_TRUE(last.has_value());
    const auto& [last_score, last_tie, last_key] = places[count - 1];
    const EvictionPlace exact{last_score, last_tie};
    EXPECT_FALSE(*last < exact);
    if (count < places.size()) {
      const auto& [next_score, next_tie, next_key] = places[count];
      EXPECT_TRUE(*last < (EvictionPlace{next_score, next_tie}));
    }
    std::set<std::uint64_t> spared_up_to;
    for (const std::uint64_t key : spared) {
      if (before.contains(key) && !(*last < EvictionPlace{NumberOf(before.at(key)), Tie(key)}))
        spared_up_to.insert(key);
    }
    EvictedSums sums;
    EvictedAges counted;
    auto evicted = shard_->PrepareEvict(Order(), *last, sums, &counted);
    ASSERT_TRUE(evicted.ok()) << evicted.status().message();
    EXPECT_EQ(sums, (EvictedSums{count, checksum}));
    EXPECT_TRUE(std::ranges::equal(counted.buckets, ages)) << "neither spared rows nor others count";
    EXPECT_EQ(counted.sum, sum_of_ages);
    std::set<std::uint64_t> said;
    for (const Key key : shard_->EndProtection(Order(), last))
      EXPECT_TRUE(said.insert(Value(key)).second) << "named twice";
    EXPECT_EQ(said, spared_up_to);
    ASSERT_TRUE(shard_->ReserveBehind(count, count).ok());
    EXPECT_EQ(ScoresNow(), before) << "nothing has changed until the rows are erased";
    evicted = shard_->PrepareEvict(Order(), exact, sums);
    EXPECT_GE(sums.rows, count) << "the protection has ended";
    // A replay does the following: it knows the last place, and counts nothing.
    std::move(*shard_->PrepareFind(batch.View())).Protect();
    evicted = shard_->PrepareEvict(Order(), *last, sums);
    EXPECT_TRUE(shard_->EndProtection(Order(), {}).empty());
    EXPECT_EQ(sums, (EvictedSums{count, checksum}));
    std::vector<Key> removed;
    EXPECT_EQ(std::move(*evicted).Erase(&removed), count);
    EXPECT_EQ(removed.size(), count);
    EXPECT_EQ(ScoresNow(), expected);
    EXPECT_EQ(shard_->Usage().rows, expected.size());
  }

  static constexpr std::size_t kLastBucket = 36;
  TableOptions options_;
  std::uint64_t now_ = 0;  // the step that the eviction is for
  std::unique_ptr<Shard> shard_;
};
SLOTWISE_ON_EVERY_BACKEND(Eviction);

TEST_P(Eviction, ScoresAreOfTheLastStepThatTouchedARow) {
  for (const OptimizerKind kind : EveryKind<OptimizerKind>()) {
    SCOPED_TRACE(ToString(kind));
    Make(kind);
    Lookup({1, 2}, 1);
    EXPECT_EQ(ScoresNow(), (Scores{{1, 1}, {2, 1}}));
    Push({2, 3, 3, 3}, 1);
    Push({3, 4}, 2);
    Lookup({1, 2, 3, 4, 5}, 3);
    EXPECT_EQ(ScoresNow(), (Scores{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}}));
    const std::vector<std::uint64_t> many(100, 1);  // a sum of several blocks
    Push(many, 7);
    EXPECT_EQ(ScoresNow().at(1), 7U);
    Import({{1, 5}, {6, kScoreOfNew}, {7, kScoreBound - 1}}, 9);
    EXPECT_EQ(ScoresNow(), (Scores{{1, 5}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {6, 9}, {7, kScoreBound - 1}}));
  }
}

// Counts are those of pushes, every occurrence, halved when a step passes a multiple of the half-life.
TEST_P(Eviction, ScoresCountOccurrencesInPushes) {
  for (const ScoreKind kind : {ScoreKind::kLfu, ScoreKind::kStepLfu}) {
    SCOPED_TRACE(ToString(kind));
    Make(OptimizerKind::kAdaGrad, 1 << 20, kind, 10);
    Lookup({1, 2}, EvictionOrder::Of(options_, 1).OfNew());
    EXPECT_EQ(ScoresNow(), (Scores{{1, 1}, {2, 1}})) << "no push has touched them";
    Push({2, 3, 3, 3}, 1);
    EXPECT_EQ(ScoresNow(), (Scores{{1, 1}, {2, kCount + 1}, {3, 3 * kCount + 1}}));
    Push({3, 3}, 9);
    EXPECT_EQ(ScoresNow().at(3), 5 * kCount + 9);
    Push({3}, 10);
    EXPECT_EQ(ScoresNow().at(3), 3 * kCount + 10) << "5, halved, and one more";
    Push({2, 3}, 40);
    EXPECT_EQ(ScoresNow(), (Scores{{1, 1}, {2, kCount + 40}, {3, kCount + 40}}));
    const std::vector<std::uint64_t> many(1000, 5);  // a sum of several blocks
    Push(many, 41);
    EXPECT_EQ(ScoresNow().at(5), 1000 * kCount + 41);
    const std::uint64_t most = ((std::uint64_t{1} << 27) - 1) * kCount;
    Import({{1, most + 41}}, 0);
    Push({1, 1}, 42);
    EXPECT_EQ(ScoresNow().at(1), most + 42) << "counts stop at their most";
    Push({1}, std::uint64_t{1} << 40);
    EXPECT_EQ(ScoresNow().at(1), kCount + kCount - 2) << "and steps";
  }
}

// Half-lives decide between a row that was counted long ago and one that was counted less since. A row that
// no push has touched counts as once.
TEST_P(Eviction, ByCountsTakesTheLeastCountedNow) {
  Make(OptimizerKind::kSgd, 1 << 20, ScoreKind::kStepLfu, 10);
  Import({{1, 16 * kCount + 5}, {2, 3 * kCount + 31}, {3, 2 * kCount + 31}, {4, 33}, {5, kCount + 30}}, 0);
  now_ = 35;
  EvictAndCheck(1, {});
  EXPECT_FALSE(ScoresNow().contains(5)) << "as often as 4, but earlier";
  now_ = 40;
  EvictAndCheck(2, {});
  EXPECT_EQ(ScoresNow(), (Scores{{2, 3 * kCount + 31}, {3, 2 * kCount + 31}}))
      << "1 is 16 / 16 now, and older";
  now_ = 80;
  EvictAndCheck(1, {2});
}

TEST_P(Eviction, ByAnyScoreTakesTheLowestPlaces) {
  constexpr std::uint64_t kSeed = 20261129;
  SCOPED_TRACE(SeedNote(Seed(kSeed)));
  Random random(Seed(kSeed));
  for (const ScoreKind kind : {ScoreKind::kLfu, ScoreKind::kStepLfu}) {
    for (const std::uint64_t half_life : {0U, 1U, 7U, 1000U}) {
      SCOPED_TRACE(std::string(ToString(kind)) + ", half-life " + std::to_string(half_life));
      Make(OptimizerKind::kAdaGrad, 1 << 20, kind, half_life);
      for (std::uint64_t step = 1; step <= 30; ++step) {
        std::vector<std::uint64_t> keys(1 + random.Below(200));
        for (std::uint64_t& key : keys) key = random.Below(1 + random.Below(600));
        Push(keys, step);
        if (step % 6 != 0) continue;
        now_ = step + 1;
        EvictAndCheck(1 + random.Below(ScoresNow().size() - keys.size() % 2), {});
        EvictAndCheck(ScoresNow().size() / 2, {keys[0]});
        CheckAges();
      }
    }
  }
}

TEST_P(Eviction, ScoresAreInSnapshotsLoadsAndDigests) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kRowWiseAdaGrad, OptimizerKind::kAdam}) {
    SCOPED_TRACE(ToString(kind));
    Make(kind);
    Push({1, 2, 3}, 1);
    const DigestSums early = shard_->Digest();
    Push({3, 4}, 2);
    const Scores then = ScoresNow();
    const DigestSums digest = shard_->Digest();
    EXPECT_NE(early, digest);
    auto begun = shard_->BeginSnapshot({.max_copy_on_write_bytes = 1 << 20});
    ASSERT_TRUE(begun.ok());
    {
      DeviceBatch batch(device(), OneKeyABag({1, 2, 3, 4}));
      InsertedBatch inserted = Insert(batch, 3);
      ASSERT_EQ(inserted.CopyBeforeWrite(), 0U);
      const std::vector<float> ones(4 * options_.dim, 1.0F);
      DeviceArray<float> gradients(device(), std::span(ones));
      std::move(inserted).Update(gradients.data(), ScalarsOfStep(options_.optimizer, 3));
    }
    EXPECT_EQ(ScoresNow().at(1), 3U);
    const auto stream = device().MakeStream();
    std::vector<float> records(begun->info.keys.size() * RecordFloats(options_));
    begun->snapshot->Read(*stream, begun->info.rows, records.data());
    stream->Wait();
    begun->snapshot->End(true);
    const auto other = std::move(*device().MakeShard(options_, {Rank{0}, 1, EvenBucketMap(1), kTestSecret}));
    ASSERT_TRUE(other->Load(begun->info.keys, records.data()).ok());
    EXPECT_EQ(ScoresOf(*other), then);
    EXPECT_EQ(other->Digest(), digest);
    // The rows that were loaded can be evicted by key.
    shard_ = std::move(*device().MakeShard(options_, {Rank{0}, 1, EvenBucketMap(1), kTestSecret}));
    ASSERT_TRUE(shard_->Load(begun->info.keys, records.data()).ok());
    EvictAndCheck(1, {1});
  }
}

// The rows that were counted are listed once, and only for the list that comes next.
TEST_P(Eviction, ListsAllRowsAgainIfNoneWereCounted) {
  Make(OptimizerKind::kSgd);
  for (std::uint64_t step = 1; step <= 100; ++step) Push({step, 1000 + step}, step);
  now_ = 101;
  const auto last = LastOf(20);
  ASSERT_TRUE(last.has_value());
  EvictedSums sums;
  ASSERT_TRUE(shard_->PrepareEvict(Order(), *last, sums).ok());
  EXPECT_EQ(sums.rows, 20U);
  const EvictionPlace of_step_60{60, ~std::uint64_t{0}};
  ASSERT_TRUE(shard_->PrepareEvict(Order().ByStep(), of_step_60, sums).ok());
  EXPECT_EQ(sums.rows, 120U) << "the rows that could go before were fewer";
}

TEST_P(Eviction, TakesTheLowestPlacesAndSparesTheBatch) {
  constexpr std::uint64_t kSeed = 20261128;
  SCOPED_TRACE(SeedNote(Seed(kSeed)));
  Random random(Seed(kSeed));
  Make(OptimizerKind::kAdaGrad);
  std::uint64_t step = 0;
  for (int round = 0; round < 12; ++round) {
    for (int batch = 0; batch < 5; ++batch) {
      std::vector<std::uint64_t> keys(1 + random.Below(300));
      for (std::uint64_t& key : keys) key = random.Below(3000);
      random.OneIn(3) ? Lookup(keys, step + 1) : Push(keys, ++step);
    }
    std::vector<std::uint64_t> spared(1 + random.Below(200));
    for (std::uint64_t& key : spared) key = random.Below(3000);
    const Scores now = ScoresNow();
    const auto others = static_cast<std::uint64_t>(std::ranges::count_if(
        now, [&](const auto& row) { return std::ranges::find(spared, row.first) == spared.end(); }));
    if (others > 0) EvictAndCheck(1 + random.Below(others), spared);
  }
}

// The digits of a place cross its two words, and the last ones are shorter.
TEST_P(Eviction, FindsAnyPlace) {
  Make(OptimizerKind::kSgd);
  Scores scores{{11, 0}, {12, kScoreBound - 1}, {13, 1}, {14, std::uint64_t{1} << 62}};
  for (std::uint64_t bit = 0; bit < 63; ++bit) scores[100 + bit] = std::uint64_t{1} << bit;
  for (std::uint64_t key = 1000; key < 1400; ++key) scores[key] = 77;
  Import(scores, 1);
  ASSERT_EQ(ScoresNow(), scores);
  EvictAndCheck(1, {});
  EvictAndCheck(1, {13});
  EvictAndCheck(130, {1000, 1001, 1002, 9999});
  while (ScoresNow().size() > 9) EvictAndCheck(std::max<std::uint64_t>(1, ScoresNow().size() / 3), {12});
}

// The buckets' bounds are between 2^n - 1 and 2^n. Steps behind the table's, which an import may bring, and
// the next one, which new rows have, are of age 0. Cells without a row count nowhere.
TEST_P(Eviction, CountsTheAgesOfRows) {
  constexpr std::uint64_t kNow = std::uint64_t{1} << 35;
  for (const ScoreKind kind : {ScoreKind::kStep, ScoreKind::kLfu, ScoreKind::kStepLfu}) {
    SCOPED_TRACE(ToString(kind));
    Make(OptimizerKind::kSgd, 1 << 20, kind);
    EXPECT_EQ(shard_->CountAges(Order()), RowAges()) << "of no row";
    const std::uint64_t twice = kind == ScoreKind::kStep ? 0 : 2 * kCount;
    Scores scores{{1, twice + kNow}, {2, twice + kNow + 1}, {3, twice + 2 * kNow - 3}, {4, twice}};
    // In a table of steps 5 is of a step that no table reaches; else 6 was never touched by a push.
    kind == ScoreKind::kStep ? scores[5] = kScoreBound - 1 : scores[6] = kNow - 5;
    for (std::uint64_t power = 0; power < 35; ++power) {
      const std::uint64_t count = kind == ScoreKind::kStep ? 0 : kCount << std::min<std::uint64_t>(power, 26);
      for (const std::uint64_t more : {0, 1}) {
        const std::uint64_t age = (std::uint64_t{1} << power) - more;
        scores[100 + 2 * power + more] = count + kNow - 1 - age;
      }
    }
    Import(scores, 1);
    now_ = kNow;
    CheckAges();
    EvictAndCheck(20, {4, 101});
    CheckAges();
    now_ = 2 * kNow - 1;  // 4 is of an age of 36 bits then
    CheckAges();
    now_ = 0;
    CheckAges();
    now_ = 4 * kNow;
    CheckAges();
    EvictAndCheck(ScoresNow().size(), {});
    CheckAges();
  }
}

// Ranks' buckets and sums add up to those of one rank with all rows.
TEST_P(Eviction, AddsUpTheAgesOfRanks) {
  constexpr std::uint64_t kSeed = 20261130;
  SCOPED_TRACE(SeedNote(Seed(kSeed)));
  Random random(Seed(kSeed));
  Make(OptimizerKind::kSgd);
  Scores scores;
  for (std::uint64_t key = 1; key <= 900; ++key) scores[key] = random.Below(1 + random.Below(5000));
  now_ = 4000;
  const EvictionPlace last{2000, ~std::uint64_t{0}};
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    std::vector<std::uint64_t> all(kLastBucket + 1), evicted(kLastBucket + 1);
    for (const auto& [key, score] : scores) {
      CountIn(all, AgeOf(score));
      if (score <= last.score) CountIn(evicted, AgeOf(score));
    }
    EvictedAges sum_of_evicted;
    PowerHistogram sum_of_all;
    for (int rank = 0; rank < ranks; ++rank) {
      const BucketMap map = EvenBucketMap(ranks);
      shard_ = std::move(*device().MakeShard(options_, {Rank{rank}, ranks, map, kTestSecret}));
      Import(scores, 1);  // the shard takes its own rows
      EvictedSums sums;
      EvictedAges ages;
      ASSERT_TRUE(shard_->PrepareEvict(Order(), last, sums, &ages).ok());
      EXPECT_EQ(ages.count(), sums.rows);
      sum_of_evicted += ages;
      const RowAges of_rank = shard_->CountAges(Order());
      for (std::size_t b = 0; b <= kLastBucket; ++b) sum_of_all.buckets[b] += of_rank.ages.buckets[b];
    }
    EXPECT_TRUE(std::ranges::equal(sum_of_evicted.buckets, evicted));
    EXPECT_TRUE(std::ranges::equal(sum_of_all.buckets, all));
  }
}

// Rows that were evicted are used again, and a full table goes on for ever.
TEST_P(Eviction, GoesOnInATableOfFixedMemory) {
  constexpr std::uint64_t kRows = 4096;
  Make(OptimizerKind::kSgd, kRows);
  std::uint64_t most_bytes = 0;
  for (std::uint64_t step = 1; step <= 60; ++step) {
    std::vector<std::uint64_t> keys = KeyRange(step * 512, 512);
    if (shard_->Usage().rows + keys.size() > kRows) EvictAndCheck(512, {});
    Push(keys, step);
    if (step == 20) most_bytes = shard_->Usage().bytes;
    if (step > 20) {
      EXPECT_LE(shard_->Usage().bytes, most_bytes) << step;
    }
  }
  EXPECT_EQ(shard_->Usage().rows, kRows);
}

}  // namespace
}  // namespace slotwise::test
