// Batches are cut to the server's limits of a message and of a round. A batch that cannot be cut is refused
// with the limit's name.
#include "client/cpp/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/distinct_keys.h"

namespace slotwise::client {
namespace {

constexpr std::uint32_t kDim = 4;

class BatchesTest : public testing::Test {
 protected:
  // A batch of `samples` samples of `slots` bags of one key, of a table of kDim elements a row.
  Batches Of(std::uint64_t samples, std::uint32_t slots, bool pushes = false) {
    keys_.resize(samples * slots);
    const BatchView view{keys_, {}, {}};
    return {.tables = {{.table = "ads", .view = view, .checked = {view, samples, slots, slots * kDim}}},
            .pushes = pushes};
  }

  // Batches of tables "0", "1", ... of so many samples, whose rows have `dim` elements.
  Batches OfTables(const std::vector<std::uint64_t>& samples, std::uint32_t dim, bool pushes) {
    keys_.resize(*std::ranges::max_element(samples));
    Batches batches{.tables = {}, .pushes = pushes};
    for (const std::uint64_t count : samples) {
      const BatchView view{std::span(keys_).first(count), {}, {}};
      batches.tables.push_back(
          {.table = std::to_string(batches.tables.size()), .view = view, .checked = {view, count, 1, dim}});
    }
    return batches;
  }

  static std::vector<Pieces> CutBy(Batches batches, const CutOptions& options) {
    const Status status = Cut(batches, options);
    EXPECT_TRUE(status.ok()) << status.message();
    return batches.requests;
  }

  // The requests of one table that is cut at these samples.
  static std::vector<Pieces> OneTable(const std::vector<std::uint64_t>& ends) {
    std::vector<Pieces> requests;
    for (std::size_t part = 0; part + 1 < ends.size(); ++part) {
      requests.push_back({{0, part, {ends[part], ends[part + 1]}}});
    }
    return requests;
  }

  static CutOptions Within(std::uint64_t message, std::uint64_t round, std::uint64_t parts = 0) {
    ServerLimits limits;
    limits.message = message;
    limits.round = round;
    return {.parts = parts, .limits = limits};
  }

  static void ExpectRefused(Batches& batches, const CutOptions& options, const std::string& message) {
    const Status refused = Cut(batches, options);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(refused.message(), message);
    EXPECT_TRUE(batches.requests.empty());
  }

  // A round that has room for one byte less refuses a step of so many.
  static void ExpectTooLarge(const Status& refused, const std::string& what, std::uint64_t bytes) {
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(refused.message().find("the step of " + what + " takes " + std::to_string(bytes) +
                                     " bytes in a round, more than the " + std::to_string(bytes - 1) +
                                     " of limits.max_round_mib; a step is applied whole"),
              0u)
        << refused.message();
  }

  std::vector<Key> keys_;
};

TEST_F(BatchesTest, PartsCoverTheSamplesOnceAndInOrder) {
  for (const std::uint64_t samples : {0, 1, 2, 3, 5, 64, 1000, 65536}) {
    for (const std::uint64_t ranks : {1, 2, 3, 4, 8}) {
      for (const std::uint32_t dim : {1U, 64U, 1000U, 100'000U}) {
        std::vector<SampleRange> parts;
        for (const Pieces& request :
             CutBy(OfTables({samples}, dim, false), {.ranks = ranks, .channels = 2})) {
          ASSERT_EQ(request.size(), 1u) << "every part of a batch that is alone is a request";
          parts.push_back(request.front().samples);
        }
        ASSERT_FALSE(parts.empty());
        EXPECT_EQ(parts.front().first, 0u);
        EXPECT_EQ(parts.back().last, samples);
        for (std::size_t i = 1; i < parts.size(); ++i) EXPECT_EQ(parts[i].first, parts[i - 1].last);
        const auto [least, most] = std::ranges::minmax(parts, {}, &SampleRange::size);
        EXPECT_LE(most.size() - least.size(), 1u);
        EXPECT_TRUE(least.size() > 0 || samples == 0);
      }
    }
  }
}

// Other numbers would change the sums' order, and so the bytes of tables that older clients trained.
TEST_F(BatchesTest, ABatchHasAsManyPartsAsItAlwaysHad) {
  const auto cut = [this](std::uint64_t samples, std::uint32_t dim, std::uint64_t ranks,
                          std::uint64_t channels) {
    return CutBy(OfTables({samples}, dim, false), {.ranks = ranks, .channels = channels});
  };
  EXPECT_EQ(cut(256, 127, 4, 2).size(), 1u) << "127 KiB";
  EXPECT_EQ(cut(256, 256, 4, 2).size(), 4u) << "256 KiB";
  EXPECT_EQ(cut(65536, 28, 4, 2).size(), 4u) << "7 MiB";
  EXPECT_EQ(cut(65536, 32, 4, 2).size(), 8u) << "8 MiB";
  EXPECT_EQ(cut(65536, 132, 4, 2).size(), 12u) << "33 MiB";
  EXPECT_EQ(cut(65536, 400, 3, 2).size(), 27u) << "100 MiB";
  EXPECT_EQ(cut(5, 5 << 20, 3, 2).size(), 5u) << "100 MiB";
  EXPECT_EQ(cut(7, 112'347, 2, 1), OneTable({0, 3, 7})) << "3 MiB";
}

// Tables of rows of a KiB.
TEST_F(BatchesTest, SeveralTablesAreCutNoMoreThanTheirRequestsWant) {
  using Counts = std::pair<std::size_t, std::uint64_t>;  // of requests, and of parts of each table
  const auto counts = [this](const std::vector<std::uint64_t>& samples, std::uint64_t ranks,
                             std::uint64_t channels) {
    CutOptions options = Within(64 << 20, std::uint64_t{1} << 40);
    options.ranks = ranks;
    options.channels = channels;
    const auto requests = CutBy(OfTables(samples, 256, true), options);
    return Counts{requests.size(), requests.back().back().part + 1};
  };
  EXPECT_EQ(counts(std::vector<std::uint64_t>(26, 4096), 1, 2), (Counts{26, 1}));
  EXPECT_EQ(counts(std::vector<std::uint64_t>(26, 4097), 1, 2), (Counts{27, 2}));
  EXPECT_EQ(counts(std::vector<std::uint64_t>(26, 8192), 1, 2), (Counts{52, 2}));
  EXPECT_EQ(counts(std::vector<std::uint64_t>(26, 1), 1, 2), (Counts{1, 1})) << "too small for two requests";
  EXPECT_EQ(counts({1024, 1024}, 8, 1), (Counts{8, 4})) << "every rank gets one";
  EXPECT_EQ(counts({1024, 1024, 1024}, 1, 2), (Counts{2, 1})) << "every channel gets one";
  EXPECT_EQ(counts({20480, 1024, 1024, 1024}, 1, 2).second, 5u) << "of the largest, 4 MiB each";
  EXPECT_EQ(counts({0, 6144, 0, 0}, 3, 2).second, 6u) << "tables without samples do not count";
}

TEST_F(BatchesTest, RequestsOfSeveralTablesAreOfEvenWeight) {
  std::vector<std::size_t> tables;
  for (const Pieces& request :
       CutBy(OfTables({1536, 256, 256, 256, 256, 256, 256, 1536}, 256, false), {.ranks = 3})) {
    tables.push_back(request.size());
  }
  EXPECT_EQ(tables, (std::vector<std::size_t>{1, 6, 1}));
}

TEST_F(BatchesTest, APartIsHalvedUntilItFitsOrHasOneSample) {
  const std::vector<std::uint32_t> offsets{0, 10, 20, 60, 70, 80, 90, 100, 110};
  Batches batches = Of(110, 1);
  batches.tables[0].view.offsets = offsets;
  batches.tables[0].checked = {batches.tables[0].view, 8, 1, kDim};
  EXPECT_EQ(CutBy(batches, Within(1 << 20, 40 * 32)), OneTable({0, 2, 3, 4, 8}));
}

// A sample of one slot takes 8 + 4 + 4 · kDim = 28 bytes in a round, and counts as the 32 of a key.
TEST_F(BatchesTest, APartMayBeAsLargeAsARound) {
  Batches batches = Of(100, 1);
  ASSERT_TRUE(Cut(batches, Within(1 << 20, 100 * 32)).ok());
  EXPECT_EQ(batches.requests, OneTable({0, 100}));
  ASSERT_TRUE(Cut(batches, Within(1 << 20, 100 * 32 - 1)).ok());
  EXPECT_EQ(batches.requests, OneTable({0, 50, 100}));

  const Batches wide = OfTables({100}, 64, false);
  EXPECT_EQ(CutBy(wide, Within(1 << 20, 100 * (8 + 4 + 4 * 64) + 4)), OneTable({0, 100}));
  EXPECT_EQ(CutBy(wide, Within(1 << 20, 100 * (8 + 4 + 4 * 64) + 3)), OneTable({0, 50, 100}));
}

TEST_F(BatchesTest, ASampleThatDoesNotFitIsRefusedByTheLimitsName) {
  Batches batches = Of(3, 2);
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 64)).ok());
  batches.requests.clear();
  ExpectRefused(batches, Within(1 << 20, 63),
                "sample 0 takes 64 bytes in a round, more than the 63 of limits.max_round_mib");
  ExpectRefused(batches, Within(15, 1 << 20),
                "sample 0 takes 16 bytes in a request, more than the 15 of limits.max_message_mib");
  const std::vector<float> weights(6);
  batches.tables[0].checked.view.weights = weights;
  ExpectRefused(batches, Within(23, 1 << 20),
                "sample 0 takes 24 bytes in a request, more than the 23 of limits.max_message_mib");
}

TEST_F(BatchesTest, AStepHasToFitIntoARoundWithAllItsParts) {
  Batches batches = Of(100, 1, true);
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 100 * 32)).ok());
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 100 * 32, 4)).ok());
  ExpectTooLarge(Cut(batches, Within(1 << 20, 100 * 32 - 1, 4)), "table ads", 3200);
}

// A bag of many keys gathers few bytes, but the server may keep a partial sum for each 11 of them.
TEST_F(BatchesTest, TheRoomForPartialSumsOfAStepCountsToo) {
  constexpr std::uint32_t kWide = 4096;
  keys_.resize(1100);
  const std::vector<std::uint32_t> offsets{0, 1100};
  const BatchView view{keys_, offsets, {}};
  Batches batches{.tables = {{.table = "ads", .view = view, .checked = {view, 1, 1, kWide}}}, .pushes = true};
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 100 * kWide * 4)).ok());
  ExpectTooLarge(Cut(batches, Within(1 << 20, 100 * kWide * 4 - 1)), "table ads", 1638400);
  batches.pushes = false;
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 1100 * 32)).ok());
}

TEST_F(BatchesTest, TheTablesOfAStepHaveToFitIntoARoundTogether) {
  Batches batches = Of(100, 1, true);
  batches.tables.push_back(batches.tables.front());
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 2 * (100 * 32))).ok());
  ExpectTooLarge(Cut(batches, Within(1 << 20, 2 * (100 * 32) - 1)), "2 tables", 6400);
}

TEST_F(BatchesTest, APartOfOneTableIsARequest) {
  for (const bool pushes : {false, true}) {
    // 1.25 MiB of values, in three parts on three ranks, of which the limit halves each.
    Batches batches = Of(81'920, 1, pushes);
    const CutOptions options{.ranks = 3, .channels = 2};
    const std::vector<Pieces> three = OneTable({0, 27306, 54613, 81'920});
    EXPECT_EQ(CutBy(batches, options), three);
    CutOptions small = options;
    small.limits.message = pushes ? 400'000 : 200'000;
    const std::vector<Pieces> six = OneTable({0, 13653, 27306, 40959, 54613, 68266, 81'920});
    EXPECT_EQ(CutBy(batches, small), six);
  }
  const CutOptions agreed{.ranks = 3, .channels = 2, .parts = 4};
  EXPECT_EQ(CutBy(Of(10, 1, true), agreed), OneTable({0, 2, 5, 7, 10}));
}

TEST_F(BatchesTest, TablesGoWholeIntoRequestsWhereTheyAreSmall) {
  for (const bool pushes : {false, true}) {
    // 26 tables of 2 MiB.
    const auto requests =
        CutBy(OfTables(std::vector<std::uint64_t>(26, 4096), 128, pushes), Within(64 << 20, 512 << 20));
    ASSERT_EQ(requests.size(), 13u);
    for (std::size_t i = 0; i < 13; ++i) {
      EXPECT_EQ(requests[i], (Pieces{{2 * i, 0, {0, 4096}}, {2 * i + 1, 0, {0, 4096}}}));
    }
  }
}

TEST_F(BatchesTest, TablesAreCutOnceThereAreMoreRanks) {
  const auto requests = CutBy(OfTables({4000, 4000}, 64, true), {.ranks = 4});
  EXPECT_EQ(requests,
            (std::vector<Pieces>{
                {{0, 0, {0, 2000}}}, {{0, 1, {2000, 4000}}}, {{1, 0, {0, 2000}}}, {{1, 1, {2000, 4000}}}}));
}

// Tables of 1000 samples and of few or none: every table of a step has the same parts.
TEST_F(BatchesTest, AStepHasAllPartsOfEveryTableAndALookupNoEmptyOnes) {
  const CutOptions options{.ranks = 6};
  EXPECT_EQ(CutBy(OfTables({1, 1000, 0}, 128, true), options),
            (std::vector<Pieces>{{{0, 0, {0, 0}}, {0, 1, {0, 0}}, {0, 2, {0, 1}}},
                                 {{1, 0, {0, 333}}},
                                 {{1, 1, {333, 666}}},
                                 {{1, 2, {666, 1000}}},
                                 {{2, 0, {0, 0}}, {2, 1, {0, 0}}, {2, 2, {0, 0}}}}));
  EXPECT_EQ(CutBy(OfTables({1, 1000, 0}, 128, false), options), (std::vector<Pieces>{{{0, 0, {0, 1}}},
                                                                                     {{1, 0, {0, 333}}},
                                                                                     {{1, 1, {333, 666}}},
                                                                                     {{1, 2, {666, 1000}}},
                                                                                     {{2, 0, {0, 0}}}}));
}

TEST_F(BatchesTest, TablesWithoutSamplesAreAskedFor) {
  for (const bool pushes : {false, true}) {
    EXPECT_EQ(CutBy(OfTables({0, 0}, 4, pushes), {.ranks = 4}),
              (std::vector<Pieces>{{{0, 0, {0, 0}}, {1, 0, {0, 0}}}}));
  }
}

TEST_F(BatchesTest, AStepOfSeveralTablesHasThePartsThatItsTrainersAgreedOn) {
  EXPECT_EQ(CutBy(OfTables({4, 1}, 4, true), {.ranks = 4, .parts = 2}),
            (std::vector<Pieces>{{{0, 0, {0, 2}}, {0, 1, {2, 4}}, {1, 0, {0, 0}}, {1, 1, {0, 1}}}}));
}

// A sample takes 24 bytes of a push here, and the two tables together 4800 beside the room for fields.
TEST_F(BatchesTest, RequestsOfSeveralTablesFitIntoMessages) {
  const Batches pushes = OfTables({100, 100}, kDim, true);
  const std::vector<Pieces> whole{{{0, 0, {0, 100}}, {1, 0, {0, 100}}}};
  EXPECT_EQ(CutBy(pushes, Within(768 + 2 * 256 + 4800, 1 << 20)), whole);
  EXPECT_EQ(CutBy(pushes, Within(768 + 2 * 256 + 4799, 1 << 20)),
            (std::vector<Pieces>{{{0, 0, {0, 100}}}, {{1, 0, {0, 100}}}}));
  // A part that does not fit becomes two, and then so many are of every table.
  EXPECT_EQ(CutBy(OfTables({100, 1}, kDim, true), Within(768 + 256 + 2399, 1 << 20)),
            (std::vector<Pieces>{{{0, 0, {0, 50}}}, {{0, 1, {50, 100}}, {1, 0, {0, 1}}, {1, 1, {1, 1}}}}));
  EXPECT_EQ(CutBy(OfTables({100, 1}, kDim, false), Within(768 + 256 + 799, 1 << 20)),
            (std::vector<Pieces>{{{0, 0, {0, 50}}}, {{0, 1, {50, 100}}, {1, 0, {0, 1}}}}));
}

TEST_F(BatchesTest, LookupsOfSeveralTablesFitIntoRounds) {
  // As APartMayBeAsLargeAsARound, of each table.
  const Batches lookups = OfTables({100, 30}, kDim, false);
  EXPECT_EQ(CutBy(lookups, Within(1 << 20, 100 * 32)),
            (std::vector<Pieces>{{{0, 0, {0, 100}}, {1, 0, {0, 30}}}}));
  EXPECT_EQ(CutBy(lookups, Within(1 << 20, 100 * 32 - 1)),
            (std::vector<Pieces>{{{0, 0, {0, 50}}, {0, 1, {50, 100}}, {1, 0, {0, 30}}}}));
}

TEST_F(BatchesTest, ASampleOfSeveralTablesThatDoesNotFitIsRefusedByItsTable) {
  Batches lookups = OfTables({1, 2}, kDim, false);
  lookups.tables[1].checked.slots = 2;
  lookups.tables[1].checked.samples = 1;
  lookups.tables[1].checked.width = 2 * kDim;
  EXPECT_TRUE(Cut(lookups, Within(16, 64)).ok()) << "tables that fit alone need not fit together";
  EXPECT_EQ(Cut(lookups, Within(15, 64)).message(),
            "sample 0 of table 1 takes 16 bytes in a request, more than the 15 of limits.max_message_mib");
  EXPECT_EQ(Cut(lookups, Within(16, 63)).message(),
            "sample 0 of table 1 takes 64 bytes in a round, more than the 63 of limits.max_round_mib");
}

TEST_F(BatchesTest, APartThatTrainersAgreedOnIsNotCut) {
  Batches batches = Of(100, 1, true);
  const Status refused = Cut(batches, Within(1000, 1 << 20, 2));
  EXPECT_EQ(refused.message(),
            "the part of samples 0 to 49 takes 1200 bytes in a request, more than the 1000 of "
            "limits.max_message_mib");
}

TEST_F(BatchesTest, ARefusalTellsHowManySamplesWereAnswered) {
  Batches batches = Of(100, 1);
  AnsweredParts answered;
  const Status full = ResourceExhausted("full");
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).message(), "full") << "nothing was sent";
  batches.requests = OneTable({0, 100});
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).message(), "full") << "a request is refused whole";
  batches.requests = OneTable({0, 40, 70, 100});
  answered.Add(batches.requests[1]);
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).message(),
            "full; the client had cut the lookup into 3 parts, of which 1 (30 of 100 samples) were answered: "
            "their keys have rows, which hold initial values, and so may keys of other parts");
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).code(), StatusCode::kResourceExhausted);
}

// 600 keys of which each is there twice, in samples of three slots.
class EachKeyOnceTest : public BatchesTest {
 protected:
  EachKeyOnceTest() : offsets_(601), out_(600 * kDim) {
    std::iota(offsets_.begin(), offsets_.end(), 0U);
    for (std::uint64_t i = 0; i < 600; ++i) keys_.push_back(Key{i % 300 * 7919});
  }

  Batches Lookups(const BatchView& view, std::uint32_t slots = 3) {
    const std::uint64_t samples = (view.offsets.empty() ? view.keys.size() : view.offsets.size() - 1) / slots;
    return {.tables = {{.table = "ads",
                        .view = view,
                        .out = std::span(out_).first(samples * slots * kDim),
                        .checked = {view, samples, slots, slots * kDim}}}};
  }
  // Returns how many keys are sent.
  std::size_t Sent(Batches batches) {
    SendEachKeyOnce(batches);
    const TableBatch& table = batches.tables.front();
    EXPECT_EQ(table.checked.view.keys.data(), table.view.keys.data());
    EXPECT_EQ(table.checked.view.keys.size(), table.view.keys.size());
    return table.view.keys.size();
  }

  std::vector<std::uint32_t> offsets_;
  std::vector<float> out_;
};

TEST_F(EachKeyOnceTest, ALookupOfSingleKeysIsOfItsDistinctKeys) {
  for (const bool has_offsets : {false, true}) {
    Batches batches = Lookups({keys_, has_offsets ? std::span(offsets_) : std::span<std::uint32_t>()});
    SendEachKeyOnce(batches);
    const TableBatch& table = batches.tables.front();
    EXPECT_EQ(std::vector<Key>(table.view.keys.begin(), table.view.keys.end()),
              std::vector<Key>(keys_.begin(), keys_.begin() + 300));
    EXPECT_EQ(table.view.offsets.size(), has_offsets ? 301u : 0u);
    EXPECT_EQ(table.checked.view.offsets.size(), table.view.offsets.size());
    EXPECT_EQ(table.checked.samples, 100u);
    EXPECT_EQ(table.out.data(), out_.data());
    EXPECT_EQ(table.out.size(), 300u * kDim);
    EXPECT_EQ(CutBy(batches, {}), OneTable({0, 100}));
    for (std::size_t i = 0; i < out_.size(); ++i) out_[i] = i < 300 * kDim ? static_cast<float>(i) : -1;
    CopyRepeatedRows(batches);
    for (std::size_t i = 0; i < out_.size(); ++i) ASSERT_EQ(out_[i], static_cast<float>(i % (300 * kDim)));
  }
}

TEST_F(EachKeyOnceTest, SamplesAreSentWhole) {
  EXPECT_EQ(Sent(Lookups({keys_, {}}, 1)), 300u);
  EXPECT_EQ(Sent(Lookups({keys_, {}}, 8)), 304u) << "38 samples";
}

TEST_F(EachKeyOnceTest, WeightsAndBagsOfNoneOrSeveralKeysAreSentAsTheyAre) {
  const std::vector<float> weights(600, 1.0F);
  EXPECT_EQ(Sent(Lookups({keys_, offsets_, weights})), 600u);
  EXPECT_EQ(Sent(Lookups({keys_, {}, weights})), 600u);
  std::vector<std::uint32_t> pairs(301);
  for (std::uint32_t bag = 0; bag <= 300; ++bag) pairs[bag] = 2 * bag;
  EXPECT_EQ(Sent(Lookups({keys_, pairs})), 600u);
  // As many bags as keys, of which the last has none and the one before has two.
  offsets_[599] = 600;
  EXPECT_EQ(Sent(Lookups({keys_, offsets_})), 600u);
}

TEST_F(EachKeyOnceTest, FewKeysAndFewRepeatedOnesAreSentAsTheyAre) {
  const std::vector<Key> few(255, Key{1});
  EXPECT_EQ(Sent(Lookups({few, {}})), 255u);
  const std::vector<Key> enough(258, Key{1});
  EXPECT_EQ(Sent(Lookups({enough, {}})), 3u);
  // A quarter is repeated, or one key less.
  for (std::uint64_t i = 0; i < 600; ++i) keys_[i] = Key{i % 450};
  EXPECT_EQ(Sent(Lookups({keys_, {}})), 450u);
  keys_[450] = Key{1000};
  EXPECT_EQ(Sent(Lookups({keys_, {}})), 600u);
}

TEST_F(EachKeyOnceTest, ManyKeysAreSentOnceIfTheEstimateSaysSo) {
  out_.resize(std::size_t{30'000} * kDim);
  std::mt19937_64 random(1);
  std::vector<Key> keys(30'000);
  for (Key& key : keys) key = Key{random()};
  EXPECT_EQ(Sent(Lookups({keys, {}})), 30'000u);
  for (std::size_t i = 9000; i < keys.size(); ++i) keys[i] = keys[i % 9000];
  EXPECT_EQ(Sent(Lookups({keys, {}})), 9000u);
}

TEST_F(EachKeyOnceTest, EveryTableOfACallIsLookedAt) {
  Batches batches = Lookups({keys_, {}});
  const std::vector<Key> others = {keys_.begin(), keys_.begin() + 300};
  std::vector<float> other_out(300 * kDim, 5);
  batches.tables.push_back(Lookups({others, {}}).tables.front());
  batches.tables.back().out = other_out;
  batches.tables.push_back(batches.tables.front());
  std::vector<float> third_out(600 * kDim);
  batches.tables.back().out = third_out;
  SendEachKeyOnce(batches);
  EXPECT_EQ(batches.tables[0].view.keys.size(), 300u);
  EXPECT_FALSE(batches.tables[1].distinct);
  EXPECT_EQ(batches.tables[2].view.keys.size(), 300u);
  for (std::size_t i = 0; i < 300 * kDim; ++i) third_out[i] = static_cast<float>(i);
  CopyRepeatedRows(batches);
  EXPECT_EQ(third_out[300 * kDim + 9], 9);
  EXPECT_EQ(other_out, std::vector<float>(300 * kDim, 5));
}

TEST_F(EachKeyOnceTest, LimitsAreThoseOfTheWholeBatch) {
  // A sample of three bags with offsets takes 3 · 8 + 4 · 4 bytes in a request.
  const BatchView view{keys_, offsets_};
  for (const std::uint64_t message : {39, 40}) {
    Batches whole = Lookups(view);
    Batches once = Lookups(view);
    SendEachKeyOnce(once);
    ASSERT_TRUE(once.tables.front().distinct);
    const CutOptions options = Within(message, 1 << 20);
    EXPECT_EQ(Cut(once, options).message(), Cut(whole, options).message());
    EXPECT_EQ(Cut(once, options).ok(), message == 40);
  }
}

TEST_F(EachKeyOnceTest, ARefusalSaysOfWhichBatchesSamplesWereAnswered) {
  Batches batches = Lookups({keys_, {}});
  SendEachKeyOnce(batches);
  batches.requests = OneTable({0, 40, 70, 100});
  AnsweredParts answered;
  answered.Add(batches.requests[1]);
  EXPECT_EQ(
      WithAnsweredParts(ResourceExhausted("full"), batches, answered).message(),
      "full; the client had cut the lookup into 3 parts, of which 1 (30 of 100 samples, of batches in "
      "which each key was sent once) were answered: their keys have rows, which hold initial values, and "
      "so may keys of other parts");
}

}  // namespace
}  // namespace slotwise::client
