// Any number of ranks reads back the checkpoint that any number of ranks has written.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/durability/checkpoint_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using ::testing::HasSubstr;

TEST_F(CheckpointTest, BringsBackRowsAndStateOfEveryOptimizer) {
  for (const auto kind : EveryKind<OptimizerKind>()) {
    SCOPED_TRACE(ToString(kind));
    const auto options = OptionsOf(kind, 5);
    const Rows rows = RowsOf(0, 500, 1, WidthOf(options));
    const Manifest manifest = MustSave(
        files_,
        {.id = std::string(ToString(kind)), .tables = {{.options = options, .rows = rows}}, .ranks = 4});
    EXPECT_EQ(test::Must(ReadAll(files_, {manifest}, 1, 2, EvenOwners(2))), rows);
    EXPECT_TRUE(Checkpoints(files_, kCheckpoints).Verify(manifest.id).ok());
  }
}

TEST_F(CheckpointTest, IsReadOnAnyNumberOfRanksAndByAnyOwners) {
  const auto options = OptionsOf(OptimizerKind::kAdam, 3);
  const Rows rows = RowsOf(0, 3000, 1, WidthOf(options));
  for (const bool scattered : {false, true}) {
    const Manifest manifest = MustSave(files_, {.id = scattered ? "scattered" : "even",
                                                .tables = {{.options = options, .rows = rows}},
                                                .ranks = 4,
                                                .owners = scattered ? ScatteredOwners(4) : EvenOwners(4)});
    for (const std::uint32_t ranks : {1U, 2U, 3U, 8U}) {
      for (const std::uint64_t chunk_bytes : {std::uint64_t{1}, std::uint64_t{500}, std::uint64_t{1} << 20}) {
        EXPECT_TRUE(test::Must(ReadAll(files_, {manifest}, 1, ranks, EvenOwners(ranks), chunk_bytes)) ==
                    rows);
      }
      EXPECT_TRUE(test::Must(ReadAll(files_, {manifest}, 1, ranks, ScatteredOwners(ranks))) == rows);
    }
  }
}

TEST_F(CheckpointTest, EachRankReadsItsBucketsAlone) {
  constexpr std::uint64_t kBlock = 4096;
  const auto options = OptionsOf(OptimizerKind::kAdaGrad, 8);
  const Rows rows = RowsOf(0, 16000, 1, WidthOf(options));
  const Manifest manifest =
      MustSave(files_, {.tables = {{.options = options, .rows = rows}}, .ranks = 4, .block_bytes = kBlock});
  const std::uint64_t share = rows.size() * (8 + 64) / 8;
  // Of each old rank all starts, and of the one that had the buckets a block more at each end of three
  // arrays.
  const std::uint64_t beside = 4 * (std::uint64_t{kBucketCount} * 8 + 2 * kBlock) + 6 * kBlock;
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    WatchedFiles watched(files_);
    Rows mine;
    ASSERT_TRUE(ReadRows(watched, {manifest}, 1, EvenOwners(8), rank, mine).ok());
    EXPECT_EQ(mine.size(), KeysOfRank(rows, EvenOwners(8), rank).size());
    EXPECT_LE(watched.bytes_read, share * 6 / 5 + beside);
    for (const std::string& path : watched.opened) {
      if (path.find("starts") != std::string::npos) continue;
      EXPECT_THAT(path, HasSubstr("/rank-" + std::to_string(rank / 2) + "."));
    }
  }
}

TEST_F(CheckpointTest, ReadsWhatADeltaErasedAndWhatItBroughtBack) {
  const auto options = OptionsOf(OptimizerKind::kAdaGrad, 2);
  const Rows before = RowsOf(0, 100, 1, WidthOf(options));
  const Manifest base =
      MustSave(files_, {.id = "a", .tables = {{.options = options, .rows = before}}, .ranks = 2});
  // Keys 10 to 29 go, and 20 to 29 come back; 90 to 109 change or are new; 500 was never there.
  TableOfTest changed{.options = options, .rows = RowsOf(90, 110, 2, WidthOf(options))};
  changed.rows.merge(RowsOf(20, 30, 3, WidthOf(options)));
  for (std::uint64_t i = 10; i < 30; ++i) changed.erased.insert(KeyAt(i));
  changed.erased.insert(KeyAt(500));
  const Manifest delta =
      MustSave(files_, {.id = "b", .parent = base.name(), .tables = {changed}, .ranks = 3, .round = 11});

  Rows after = before;
  for (std::uint64_t i = 10; i < 30; ++i) after.erase(KeyAt(i));
  for (const auto& [key, record] : changed.rows) after[key] = record;
  for (const std::uint64_t chunk_bytes : {std::uint64_t{1}, std::uint64_t{1} << 20}) {
    EXPECT_EQ(test::Must(ReadAll(files_, {base, delta}, 1, 2, ScatteredOwners(2), chunk_bytes)), after);
  }
}

TEST_F(CheckpointTest, KnowsTablesThatCameAndWent) {
  const auto options = OptionsOf(OptimizerKind::kSgd, 2);
  const Rows rows = RowsOf(0, 20, 1, 2);
  const Manifest base = MustSave(files_, {.id = "a", .tables = {{.id = 1, .rows = {}}}, .next_table_id = 2});
  const Manifest delta = MustSave(
      files_, {.id = "b", .parent = base.name(), .tables = {{.id = 2, .options = options, .rows = rows}}});
  EXPECT_EQ(ReadAll(files_, {base, delta}, 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(test::Must(ReadAll(files_, {base, delta}, 2)), rows);
}

TEST_F(CheckpointTest, GivesBackTheNewestLedger) {
  const Manifest base = MustSave(files_, {.id = "a", .ledger = "old"});
  const Manifest delta =
      MustSave(files_, {.id = "b", .parent = base.name(), .ledger = std::string(5000, 'n')});
  const auto ledger = test::Must(ReadLedger(files_, kCheckpoints, {base, delta}));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(ledger.data()), ledger.size()), std::string(5000, 'n'));
}

// --- Bytes on disk

TEST_F(CheckpointTest, WritesNumpysArraysInBucketOrder) {
  const auto options = OptionsOf(OptimizerKind::kAdam, 2);
  const Rows rows = RowsOf(0, 40, 1, WidthOf(options));
  MustSave(files_, {.id = "a", .tables = {{.id = 7, .options = options, .rows = rows}}});
  std::vector<std::pair<std::uint32_t, Key>> order;
  for (const auto& [key, record] : rows) order.emplace_back(BucketOfKey(key), key);
  std::ranges::sort(order);
  std::string keys;
  std::string values;
  std::string m;
  std::string v;
  const auto add = [](std::string& text, const void* data, std::size_t bytes) {
    text.append(static_cast<const char*>(data), bytes);
  };
  for (const auto& [bucket, key] : order) {
    add(keys, &key, 8);
    add(values, rows.at(key).data(), 8);
    add(m, rows.at(key).data() + 2, 8);
    add(v, rows.at(key).data() + 4, 8);
  }
  const auto header = [](const std::string& type, const std::string& shape) {
    std::string text("\x93NUMPY\x01\x00\x76\x00", 10);
    text += "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    return text + std::string(127 - text.size(), ' ') + "\n";
  };
  const std::string folder = kCheckpoints + "/a/table-7/rank-0.";
  EXPECT_EQ(TextOf(files_.Contents(folder + "keys.npy")), header("<u8", "(40, )") + keys);
  EXPECT_EQ(TextOf(files_.Contents(folder + "rows.npy")), header("<f4", "(40, 2)") + values);
  EXPECT_EQ(TextOf(files_.Contents(folder + "m.npy")), header("<f4", "(40, 2)") + m);
  EXPECT_EQ(TextOf(files_.Contents(folder + "v.npy")), header("<f4", "(40, 2)") + v);
  const std::string starts = TextOf(files_.Contents(folder + "starts.npy"));
  ASSERT_EQ(starts.size(), 128 + 4097 * 8);
  EXPECT_EQ(starts.substr(0, 128), header("<u8", "(4097, )"));
  for (std::uint32_t bucket = 0; bucket <= kBucketCount; ++bucket) {
    std::uint64_t start = 0;
    std::memcpy(&start, starts.data() + 128 + bucket * 8, 8);
    const auto below = std::ranges::count_if(order, [&](const auto& item) { return item.first < bucket; });
    ASSERT_EQ(start, static_cast<std::uint64_t>(below));
  }
}

TEST_F(CheckpointTest, PiecesOfAnySizeMakeTheSameFiles) {
  const auto options = OptionsOf(OptimizerKind::kMomentum, 64);
  const Rows rows = RowsOf(0, 5000, 1, WidthOf(options));
  const CheckpointOfTest whole{
      .id = "whole", .tables = {{.options = options, .rows = rows}}, .block_bytes = 70000};
  MustSave(files_, whole);  // 2.5 MB of records: more than a writer splits, or keeps, at a time
  const auto sorted = SortByBucket(KeysOfRank(rows, EvenOwners(1), 0), BucketOfKey);
  auto writer = test::Must(CheckpointWriter::Begin(files_, kCheckpoints, "pieces", 0, 70000));
  auto table = test::Must(writer.BeginTable(
      {.table = TableId{1}, .options = options, .starts = sorted.starts, .erased_starts = {}}));
  std::size_t at = 0;
  for (std::size_t piece = 1; at < sorted.items.size(); at += piece, piece = piece * 3 + 1) {
    piece = std::min(piece, sorted.items.size() - at);
    const auto keys = std::span(sorted.items).subspan(at, piece);
    ASSERT_TRUE(table.AppendKeys(keys).ok());
    std::vector<float> records;
    for (const Key key : keys) records.insert(records.end(), rows.at(key).begin(), rows.at(key).end());
    ASSERT_TRUE(table.AppendRecords(records).ok());
  }
  const auto entry = test::Must(table.Finish());
  EXPECT_TRUE(entry == Checkpoints(files_, kCheckpoints).ChainOf("whole")->front().tables[0].ranks[0]);
  for (const FileEntry& file : entry.files) {
    const std::string path = "/table-1/" + file.name;
    EXPECT_TRUE(files_.Contents(PartialFolder(kCheckpoints, "pieces") + path) ==
                files_.Contents(kCheckpoints + "/whole" + path));
  }
}

struct Narrowed {
  float value;
  std::uint16_t bits;
};

// Writes the values as rows of one element, reads their bits back, and returns the error that is stated.
float StatedError(SimFiles& files, const std::string& id, DataType type,
                  const std::vector<Narrowed>& values) {
  TableOfTest table{.options = OptionsOf(OptimizerKind::kSgd, 1), .type = type};
  for (std::size_t i = 0; i < values.size(); ++i) table.rows[KeyAt(i)] = {values[i].value};
  const Manifest manifest = MustSave(files, {.id = id, .tables = {table}});
  const auto read = test::Must(ReadAll(files, {manifest}, 1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float wide = read.at(KeyAt(i))[0];
    const float expected =
        type == DataType::kFloat16 ? FromFloat16(values[i].bits) : FromBFloat16(values[i].bits);
    EXPECT_EQ(wide, expected) << values[i].value;
    EXPECT_TRUE(std::isfinite(wide));
  }
  const float error = manifest.tables[0].ranks[0].largest_error;
  EXPECT_EQ(Checkpoints(files, kCheckpoints).ChainOf(id)->front().tables[0].ranks[0].largest_error, error);
  return error;
}

TEST_F(CheckpointTest, RoundsTo16BitsToNearestEvenAndNeverToInfinity) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_EQ(StatedError(files_, "exact", DataType::kFloat16, {{1.0F, 0x3C00}, {-0.5F, 0xB800}}), 0.0F);
  EXPECT_EQ(
      StatedError(files_, "ties", DataType::kFloat16,
                  {{1 + 0x1p-11F, 0x3C00}, {1 + 3 * 0x1p-11F, 0x3C02}, {0x1p-25F, 0}, {3 * 0x1p-25F, 2}}),
      0x1p-11F);
  EXPECT_EQ(StatedError(files_, "large", DataType::kFloat16,
                        {{65504, 0x7BFF}, {65519, 0x7BFF}, {65520, 0x7BFF}, {-65521, 0xFBFF}}),
            17.0F);
  EXPECT_GE(StatedError(files_, "most", DataType::kFloat16, {{kMax, 0x7BFF}, {-kMax, 0xFBFF}}),
            double{kMax} - 65504.0);
  EXPECT_EQ(StatedError(files_, "wide-ties", DataType::kBFloat16,
                        {{1 + 0x1p-8F, 0x3F80}, {1 + 3 * 0x1p-8F, 0x3F82}, {-1 - 3 * 0x1p-8F, 0xBF82}}),
            0x1p-8F);
  EXPECT_EQ(StatedError(files_, "wide-most", DataType::kBFloat16, {{kMax, 0x7F7F}, {-kMax, 0xFF7F}}),
            kMax - FromBFloat16(0x7F7F));
}

TEST_F(CheckpointTest, NeverStatesLessThanTheLargestError) {
  // 2^30 + 128 - 65504 lies halfway between two floats, of which the even one is smaller.
  const float value = 0x1p30F + 128;
  const float stated = StatedError(files_, "a", DataType::kFloat16, {{value, 0x7BFF}, {1.0F, 0x3C00}});
  EXPECT_GE(double{stated}, double{value} - 65504.0);
  EXPECT_EQ(stated, 0x1p30F - 65344);
}

}  // namespace
}  // namespace slotwise
