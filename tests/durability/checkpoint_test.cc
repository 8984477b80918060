// What ranks write of a checkpoint, and what any number of ranks reads back.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/durability/checkpoint_rig.h"
#include "tests/durability/watched_files.h"

namespace slotwise {
namespace {

using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { EXPECT_TRUE(MakeCheckpointFolder(files_).ok()); }

  SimFiles files_;
};

// Of two tables on two ranks.
CheckpointOfTest TwoTables(const std::string& id, std::uint64_t seed) {
  const auto momentum = OptionsOf(OptimizerKind::kMomentum, 3);
  const auto sgd = OptionsOf(OptimizerKind::kSgd, 1);
  return {.id = id,
          .tables = {{.id = 1, .options = momentum, .rows = RowsOf(0, 300, seed, WidthOf(momentum))},
                     {.id = 4, .options = sgd, .rows = RowsOf(50, 90, seed + 1, WidthOf(sgd))}},
          .ranks = 2,
          .created = seed,
          .round = seed,
          .ledger = "what was applied " + std::to_string(seed)};
}

TEST_F(CheckpointTest, BringsBackRowsAndStateOfEveryOptimizer) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdaGrad, OptimizerKind::kAdam,
                          OptimizerKind::kMomentum, OptimizerKind::kNesterov, OptimizerKind::kRowWiseAdaGrad,
                          OptimizerKind::kRmsProp, OptimizerKind::kFtrl}) {
    SCOPED_TRACE(ToString(kind));
    const auto options = OptionsOf(kind, 5);
    const Rows rows = RowsOf(0, 500, 1, WidthOf(options));
    const Manifest manifest = MustSave(
        files_,
        {.id = std::string(ToString(kind)), .tables = {{.options = options, .rows = rows}}, .ranks = 4});
    const auto read = ReadAll(files_, {manifest}, 1, 2, EvenOwners(2));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, rows);
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
        const auto even = ReadAll(files_, {manifest}, 1, ranks, EvenOwners(ranks), chunk_bytes);
        ASSERT_TRUE(even.ok()) << even.status().message();
        EXPECT_TRUE(*even == rows);
      }
      const auto anyhow = ReadAll(files_, {manifest}, 1, ranks, ScatteredOwners(ranks));
      ASSERT_TRUE(anyhow.ok()) << anyhow.status().message();
      EXPECT_TRUE(*anyhow == rows);
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
  // Of each old rank all starts, and of the one that had the buckets a block more at each end of three arrays.
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
    const auto read = ReadAll(files_, {base, delta}, 1, 2, ScatteredOwners(2), chunk_bytes);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, after);
  }
}

TEST_F(CheckpointTest, KnowsTablesThatCameAndWent) {
  const auto options = OptionsOf(OptimizerKind::kSgd, 2);
  const Rows rows = RowsOf(0, 20, 1, 2);
  const Manifest base = MustSave(files_, {.id = "a", .tables = {{.id = 1, .rows = {}}}, .next_table_id = 2});
  const Manifest delta = MustSave(
      files_, {.id = "b", .parent = base.name(), .tables = {{.id = 2, .options = options, .rows = rows}}});
  EXPECT_EQ(ReadAll(files_, {base, delta}, 1).status().code(), StatusCode::kNotFound);
  const auto read = ReadAll(files_, {base, delta}, 2);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, rows);
}

TEST_F(CheckpointTest, GivesBackTheNewestLedger) {
  const Manifest base = MustSave(files_, {.id = "a", .ledger = "old"});
  const Manifest delta =
      MustSave(files_, {.id = "b", .parent = base.name(), .ledger = std::string(5000, 'n')});
  const auto ledger = ReadLedger(files_, kCheckpoints, {base, delta});
  ASSERT_TRUE(ledger.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(ledger->data()), ledger->size()),
            std::string(5000, 'n'));
}

// --- Bytes on disk

std::string TextOf(const SimFiles& files, const std::string& path) {
  const Bytes bytes = files.Contents(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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
  EXPECT_EQ(TextOf(files_, folder + "keys.npy"), header("<u8", "(40, )") + keys);
  EXPECT_EQ(TextOf(files_, folder + "rows.npy"), header("<f4", "(40, 2)") + values);
  EXPECT_EQ(TextOf(files_, folder + "m.npy"), header("<f4", "(40, 2)") + m);
  EXPECT_EQ(TextOf(files_, folder + "v.npy"), header("<f4", "(40, 2)") + v);
  const std::string starts = TextOf(files_, folder + "starts.npy");
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
  auto writer = CheckpointWriter::Begin(files_, kCheckpoints, "pieces", 0, 70000);
  ASSERT_TRUE(writer.ok());
  auto table = writer->BeginTable(
      {.table = TableId{1}, .options = options, .starts = sorted.starts, .erased_starts = {}});
  ASSERT_TRUE(table.ok());
  std::size_t at = 0;
  for (std::size_t piece = 1; at < sorted.items.size(); at += piece, piece = piece * 3 + 1) {
    piece = std::min(piece, sorted.items.size() - at);
    const auto keys = std::span(sorted.items).subspan(at, piece);
    ASSERT_TRUE(table->AppendKeys(keys).ok());
    std::vector<float> records;
    for (const Key key : keys) records.insert(records.end(), rows.at(key).begin(), rows.at(key).end());
    ASSERT_TRUE(table->AppendRecords(records).ok());
  }
  const auto entry = table->Finish();
  ASSERT_TRUE(entry.ok());
  EXPECT_TRUE(*entry == Checkpoints(files_, kCheckpoints).ChainOf("whole")->front().tables[0].ranks[0]);
  for (const FileEntry& file : entry->files) {
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
  const auto read = ReadAll(files, {manifest}, 1);
  EXPECT_TRUE(read.ok()) << read.status().message();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float wide = read->at(KeyAt(i))[0];
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

// --- Damage

// Reads and verifies everything there is. A checkpoint that was damaged has to be refused somewhere.
Status ReadEverything(FileSystem& files, const std::string& id) {
  const Checkpoints checkpoints(files, kCheckpoints);
  const auto chain = checkpoints.ChainOf(id);
  if (!chain.ok()) return chain.status();
  for (const TableEntry& table : chain->back().tables) {
    const auto rows = ReadAll(files, *chain, Value(table.id));
    if (!rows.ok()) return rows.status();
  }
  return ReadLedger(files, kCheckpoints, *chain).status();
}

class DamageTest : public CheckpointTest {
 protected:
  DamageTest() {
    MustSave(files_, TwoTables("a", 1));
    auto newer = TwoTables("b", 2);
    newer.tables[1].type = DataType::kFloat16;
    MustSave(files_, newer);
    auto delta = TwoTables("c", 3);
    delta.parent = Checkpoints(files_, kCheckpoints).ChainOf("b")->front().name();
    delta.tables[1].type = DataType::kFloat16;
    for (std::uint64_t i = 1000; i < 1300; ++i) delta.tables[0].erased.insert(KeyAt(i));
    for (std::uint64_t i = 51; i < 60; ++i) delta.tables[1].erased.insert(KeyAt(i));
    MustSave(files_, delta);
  }

  void ExpectRefused(const std::string& path, const std::string& how) {
    SCOPED_TRACE(path + " " + how);
    const std::string id = path.substr(kCheckpoints.size() + 1, 1);
    const Status read = ReadEverything(files_, id);
    EXPECT_EQ(read.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(read.message(), HasSubstr(path));
    const Status verified = Checkpoints(files_, kCheckpoints).Verify(id);
    EXPECT_EQ(verified.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(verified.message(), HasSubstr(path));
  }

  std::vector<std::string> Paths() {
    auto paths = FilesBelow(files_, kCheckpoints + "/b");
    const auto more = FilesBelow(files_, kCheckpoints + "/c");
    paths.insert(paths.end(), more.begin(), more.end());
    return paths;
  }
};

TEST_F(DamageTest, NothingIsRefusedOfWhatIsWhole) {
  for (const std::string id : {"a", "b", "c"}) {
    EXPECT_EQ(ReadEverything(files_, id).message(), "");
    EXPECT_EQ(Checkpoints(files_, kCheckpoints).Verify(id).message(), "");
  }
  // 2 ranks; the first table has 4 files, the second 3; a delta two more of each.
  EXPECT_EQ(Paths().size(), 2 + 2 * (4 + 3) + 2 + 2 * (6 + 5));
}

TEST_F(DamageTest, RefusesAndNamesEveryFileThatIsMissingCutOrTooLong) {
  for (const std::string& path : Paths()) {
    const Bytes whole = files_.Contents(path);
    ASSERT_TRUE(files_.Remove(path).ok());
    ExpectRefused(path, "is missing");
    for (const std::size_t bytes : {std::size_t{0}, whole.size() / 2, whole.size() - 1, whole.size() + 1}) {
      Bytes other = whole;
      other.resize(bytes);
      files_.SetContents(path, other);
      ExpectRefused(path, "has " + std::to_string(bytes) + " bytes");
    }
    files_.SetContents(path, whole);
  }
  EXPECT_TRUE(ReadEverything(files_, "c").ok());
}

TEST_F(DamageTest, RefusesAndNamesEveryFileOfWhichABitIsAnother) {
  for (const std::string& path : Paths()) {
    const Bytes whole = files_.Contents(path);
    // A place in each block, and the last byte.
    std::vector<std::size_t> places = {whole.size() - 1};
    for (std::size_t at = 0; at < whole.size(); at += kSmallBlocks)
      places.push_back(std::min<std::size_t>(at + Mix(at) % kSmallBlocks, whole.size() - 1));
    for (const std::size_t place : places) {
      Bytes other = whole;
      other[place] ^= std::byte{1} << (place % 8);
      files_.SetContents(path, other);
      ExpectRefused(path, "differs at " + std::to_string(place));
    }
    files_.SetContents(path, whole);
  }
}

TEST_F(DamageTest, RefusesAndNamesEveryFileThatIsAnOlderCheckpoints) {
  for (const std::string& path : FilesBelow(files_, kCheckpoints + "/b")) {
    const Bytes whole = files_.Contents(path);
    const Bytes older = files_.Contents(kCheckpoints + "/a" + path.substr(kCheckpoints.size() + 2));
    if (older == whole) continue;  // equal keys make equal files
    files_.SetContents(path, older);
    ExpectRefused(path, "is that of the checkpoint before");
    files_.SetContents(path, whole);
  }
}

// Gives a file other bytes, and its manifest's entry their checksums.
void Forge(SimFiles& files, Manifest& manifest, FileEntry& entry, const std::string& path,
           const Bytes& bytes) {
  const std::string folder = path.substr(0, path.find_last_of('/'));
  ASSERT_TRUE(files.Remove(path).ok());
  auto writer = BlockWriter::Create(files, folder, entry.name, entry.block_bytes);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(bytes).ok());
  entry = *writer->Finish();
  const std::string text = *SerializeManifest(manifest);
  const auto view = std::as_bytes(std::span(text));
  files.SetContents(kCheckpoints + "/" + manifest.id + "/manifest.json", {view.begin(), view.end()});
}

TEST_F(DamageTest, RefusesStartsThatFallOrEndElsewhereOrHaveForeignBuckets) {
  const std::string path = kCheckpoints + "/a/table-1/rank-0.starts.npy";
  const Bytes whole = files_.Contents(path);
  const auto forge = [&](std::uint32_t bucket, std::int64_t by) {
    Manifest manifest = Checkpoints(files_, kCheckpoints).ChainOf("a")->front();
    Bytes bytes = whole;
    for (std::uint32_t b = bucket; b <= (by > 0 ? bucket : kBucketCount); ++b) {
      std::int64_t start = 0;
      std::memcpy(&start, &bytes[128 + b * 8], 8);
      start += by;
      std::memcpy(&bytes[128 + b * 8], &start, 8);
    }
    Forge(files_, manifest, manifest.tables[0].ranks[0].files[1], path, bytes);
    const Status status = ReadEverything(files_, "a");
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(path));
    return status.message();
  };
  EXPECT_THAT(forge(0, 1), HasSubstr("does not rise from 0 to"));
  EXPECT_THAT(forge(100, 100000), HasSubstr("does not rise from 0 to"));
  EXPECT_THAT(forge(4096, -1), HasSubstr("does not rise from 0 to"));
  EXPECT_THAT(forge(4096, 1), HasSubstr("does not rise from 0 to"));
  // The last key goes to the last bucket, which is rank 1's.
  Bytes bytes = whole;
  std::uint64_t rows = 0;
  std::memcpy(&rows, &whole[128 + 4096 * 8], 8);
  const std::uint64_t fewer = rows - 1;
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
    std::uint64_t start = 0;
    std::memcpy(&start, &bytes[128 + bucket * 8], 8);
    if (start == rows) std::memcpy(&bytes[128 + bucket * 8], &fewer, 8);
  }
  Manifest manifest = Checkpoints(files_, kCheckpoints).ChainOf("a")->front();
  Forge(files_, manifest, manifest.tables[0].ranks[0].files[1], path, bytes);
  EXPECT_THAT(ReadEverything(files_, "a").message(),
              HasSubstr("has keys of bucket 4095, which rank 1 owned"));
}

// --- Writers

TEST_F(CheckpointTest, AWriterRefusesKeysThatAreNotThoseThatWereAnnounced) {
  const auto options = OptionsOf(OptimizerKind::kSgd, 1);
  auto writer = CheckpointWriter::Begin(files_, kCheckpoints, "a", 0, kSmallBlocks);
  ASSERT_TRUE(writer.ok());
  std::uint32_t id = 0;
  const auto begin = [&](const BucketStarts& starts, std::optional<BucketStarts> erased = {}) {
    return writer->BeginTable(
        {.table = TableId{++id}, .options = options, .starts = starts, .erased_starts = erased});
  };
  BucketStarts starts(kBucketCount + 1, 3);
  starts[0] = 0;
  starts[1] = 2;  // two keys in bucket 0, one in bucket 1
  const std::vector<Key> keys = {Key{5}, Key{9}, Key{1}};
  const std::vector<float> records = {1, 2, 3};
  const auto span = std::span(keys);
  {
    auto table = begin(starts);
    ASSERT_TRUE(table.ok());
    EXPECT_TRUE(table->AppendKeys(span.first(2)).ok());
    EXPECT_TRUE(table->AppendKeys(span.last(1)).ok());
    EXPECT_TRUE(table->AppendRecords(records).ok());
    EXPECT_TRUE(table->Finish().ok());
  }
  const auto expect_internal = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.message();
  };
  for (const std::vector<Key>& wrong :
       {std::vector{Key{9}, Key{5}}, {Key{5}, Key{5}}, {Key{5}, Key{9}, Key{1}, Key{2}}})
    expect_internal(begin(starts)->AppendKeys(wrong));
  expect_internal(begin(starts)->AppendRecords(std::vector<float>(4)));
  expect_internal(begin(starts)->AppendErased(span.first(1)));
  expect_internal(begin(starts, starts)->AppendErased(std::vector{Key{9}, Key{5}}));
  BucketStarts falling = starts;
  falling[7] = 1;
  expect_internal(begin(falling).status());
  expect_internal(begin(starts, falling).status());
  expect_internal(begin({0, 3}).status());
  {
    auto table = begin(starts);
    EXPECT_TRUE(table->AppendKeys(span.first(2)).ok());
    EXPECT_TRUE(table->AppendRecords(records).ok());
    expect_internal(table->Finish().status());
  }
  {
    auto table = begin(starts);
    EXPECT_TRUE(table->AppendKeys(keys).ok());
    EXPECT_TRUE(table->AppendRecords(std::span(records).first(2)).ok());
    expect_internal(table->Finish().status());
  }
  {
    auto table = begin(starts, starts);
    EXPECT_TRUE(table->AppendKeys(keys).ok());
    EXPECT_TRUE(table->AppendRecords(records).ok());
    EXPECT_TRUE(table->AppendErased(span.first(2)).ok());
    expect_internal(table->Finish().status());
  }
}

TEST_F(CheckpointTest, ARankHasSyncedAllThatItMadeBeforeItIsDone) {
  CheckpointOfTest checkpoint = TwoTables("a", 1);
  Manifest manifest = BareManifest(checkpoint);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    WatchedFiles watched(files_);
    ASSERT_TRUE(WriteRank(watched, checkpoint, rank, manifest).ok());
    EXPECT_THAT(watched.dirty_files, ::testing::IsEmpty());
    // The partial folder's own name is the publisher's to sync.
    EXPECT_THAT(watched.dirty_folders, ::testing::ElementsAre(kCheckpoints));
  }
}

TEST_F(CheckpointTest, AllIsSyncedBeforeTheCheckpointExists) {
  WatchedFiles watched(files_);
  int published = 0;
  watched.before_change = [&](const std::string& operation, const std::string& path) {
    if (operation != "rename") return Status();
    EXPECT_THAT(watched.dirty_files, ::testing::IsEmpty()) << path;
    auto folders = watched.dirty_folders;
    folders.erase(kCheckpoints);
    if (path.ends_with("manifest.json.new")) {
      folders.erase(PartialFolder(kCheckpoints, "a"));  // which has just got that file
    } else {
      ++published;
    }
    EXPECT_THAT(folders, ::testing::IsEmpty()) << path;
    return Status();
  };
  MustSave(watched, TwoTables("a", 1));
  EXPECT_EQ(published, 1);
  EXPECT_THAT(watched.dirty_files, ::testing::IsEmpty());
  EXPECT_THAT(watched.dirty_folders, ::testing::IsEmpty());
}

TEST_F(CheckpointTest, AnIdIsTakenOnce) {
  const Manifest first = MustSave(files_, TwoTables("a", 1));
  const auto again = Save(files_, TwoTables("a", 2));
  EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(*Checkpoints(files_, kCheckpoints).ChainOf("a") == Chain{first});
}

TEST_F(CheckpointTest, AManifestThatContradictsItselfIsNotPublished) {
  const CheckpointOfTest checkpoint = TwoTables("a", 1);
  Manifest manifest = BareManifest(checkpoint);
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(WriteRank(files_, checkpoint, rank, manifest).ok());
  manifest.tables[0].ranks[1].rows += 1;
  EXPECT_EQ(PublishCheckpoint(files_, kCheckpoints, manifest).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Checkpoints(files_, kCheckpoints).List()->empty());
}

// --- Crashes

CheckpointOfTest Small(const std::string& id, std::uint64_t seed) {
  const auto options = OptionsOf(OptimizerKind::kAdaGrad, 1);
  return {.id = id,
          .tables = {{.options = options, .rows = RowsOf(0, 20 + seed, seed, WidthOf(options))}},
          .ranks = 2,
          .created = seed,
          .round = seed,
          .block_bytes = 20000};
}

// Expects "b" whole, or, unless it was published, "a".
void ExpectOldOrNew(SimFiles& files, bool published) {
  const Checkpoints checkpoints(files, kCheckpoints);
  ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
  const auto newest = checkpoints.Newest();
  ASSERT_TRUE(newest.ok()) << newest.status().message();
  EXPECT_TRUE(newest->passed_over.empty());
  const std::string id = newest->chain.back().id;
  EXPECT_TRUE(id == "b" || (id == "a" && !published)) << id;
  EXPECT_EQ(checkpoints.Verify(id).message(), "");
  const auto rows = ReadAll(files, newest->chain, 1);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_TRUE(*rows == Small(id, id == "a" ? 1 : 2).tables[0].rows);
  const auto names = files.List(kCheckpoints);
  EXPECT_EQ(names->size(), id == "a" ? 1 : 2);
  if (id == "b") return;
  EXPECT_TRUE(Save(files, Small("b", 2)).ok());
}

TEST(CheckpointCrash, AtAnyStepOfWritingAndPublishingTheOldOrTheNewIsThere) {
  bool ok = false;  // the last step is one behind all that is done
  for (std::uint64_t step = 1; !ok; ++step) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE("step " + std::to_string(step) + " seed " + std::to_string(seed));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      MustSave(files, Small("a", 1));
      const std::uint64_t before = files.operations();
      files.CrashAt(before + step);
      const auto saved = Save(files, Small("b", 2));
      ok = saved.ok();
      files.CrashAt(0);
      files.Crash(seed);
      ExpectOldOrNew(files, ok);
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_LT(step, 200);
  }
}

TEST(CheckpointCrash, WhenAnyStepFailsTheOldOrTheNewIsThere) {
  for (const auto fault : {SimFiles::Fault::kNoSpace, SimFiles::Fault::kBroken}) {
    bool ok = false;
    for (std::uint64_t step = 1; !ok; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      MustSave(files, Small("a", 1));
      files.FailAt(files.operations() + step, fault);
      const auto saved = Save(files, Small("b", 2));
      ok = saved.ok();
      if (!ok) {
        EXPECT_EQ(saved.status().code(), fault == SimFiles::Fault::kNoSpace ? StatusCode::kResourceExhausted
                                                                            : StatusCode::kUnavailable);
      }
      files.FailAt(0, fault);
      ExpectOldOrNew(files, ok);
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_LT(step, 200);
    }
  }
}

}  // namespace
}  // namespace slotwise
