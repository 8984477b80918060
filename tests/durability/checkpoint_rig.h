// Shared code of the checkpoint tests: tables as plain maps, which any number of ranks writes as checkpoints
// and reads back.
#ifndef SLOTWISE_TESTS_DURABILITY_CHECKPOINT_RIG_H_
#define SLOTWISE_TESTS_DURABILITY_CHECKPOINT_RIG_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/durability/bucket_order.h"
#include "server/durability/checkpoint_reader.h"
#include "server/durability/checkpoint_writer.h"
#include "server/durability/checkpoints.h"
#include "tests/durability/sim_files.h"
#include "tests/support/status.h"

namespace slotwise {

inline const std::string kCheckpoints = "checkpoints";
inline constexpr std::uint64_t kSmallBlocks = 1000;

using Bytes = std::vector<std::byte>;
inline Bytes BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline std::string TextOf(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

using Rows = std::map<Key, std::vector<float>>;  // a record for each key: values, then state

inline std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

inline std::uint32_t BucketOfKey(Key key) { return static_cast<std::uint32_t>(Mix(Value(key)) >> 52); }

// Returns a map in which bucket b belongs to rank b * ranks / 4096.
inline BucketOwners EvenOwners(std::uint32_t ranks) {
  BucketOwners owners{};
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket)
    owners[bucket] = static_cast<std::uint16_t>(bucket * ranks / kBucketCount);
  return owners;
}

// Returns a map that scatters a rank's buckets, and gives ranks different numbers of them.
inline BucketOwners ScatteredOwners(std::uint32_t ranks) {
  BucketOwners owners{};
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket)
    owners[bucket] = static_cast<std::uint16_t>(std::min(Mix(bucket) % ranks, Mix(bucket + 9999) % ranks));
  return owners;
}

inline TableOptions OptionsOf(OptimizerKind kind, std::uint32_t dim) {
  TableOptions options;
  options.name = TableName("words");
  options.dim = dim;
  options.optimizer.kind = kind;
  options.initializer.seed = 0xfedcba9876543210;
  return options;
}

inline std::uint32_t WidthOf(const TableOptions& options) { return RecordFloats(options); }

// Returns a record that follows from the key and a seed: multiples of 1/2 from 0 to 31, which all types hold
// exactly, and which are legal squares.
inline std::vector<float> RecordOf(Key key, std::uint64_t seed, std::uint32_t width) {
  std::vector<float> record(width);
  for (std::uint32_t i = 0; i < width; ++i)
    record[i] = static_cast<float>(Mix(Value(key) * 31 + seed * 17 + i) % 63) * 0.5F;
  return record;
}

// Returns keys that are spread over 64 bits.
inline Key KeyAt(std::uint64_t i) { return Key{i * 0x9E3779B97F4A7C15}; }

// Returns rows for the keys at [begin, end).
inline Rows RowsOf(std::uint64_t begin, std::uint64_t end, std::uint64_t seed, std::uint32_t width) {
  Rows rows;
  for (std::uint64_t i = begin; i < end; ++i) rows[KeyAt(i)] = RecordOf(KeyAt(i), seed, width);
  return rows;
}

struct TableOfTest {
  std::uint32_t id = 1;
  TableOptions options = OptionsOf(OptimizerKind::kAdaGrad, 2);
  Rows rows = {};
  std::set<Key> erased = {};  // in deltas
  DataType type = DataType::kFloat32;
  std::uint64_t generation = 11;
  std::uint64_t steps = 5;
};

struct CheckpointOfTest {
  std::string id = "a";
  std::optional<CheckpointName> parent = std::nullopt;
  std::vector<TableOfTest> tables = {};
  std::uint32_t ranks = 1;
  std::optional<BucketOwners> owners = std::nullopt;  // none: even ones
  std::uint64_t created = 100;
  std::uint64_t round = 10;
  std::uint64_t data_lineage = 77;
  std::uint32_t next_table_id = 10;
  std::string ledger = "what was applied";
  std::uint64_t block_bytes = kSmallBlocks;

  BucketOwners Owners() const { return owners ? *owners : EvenOwners(ranks); }
};

template <class Keys>
std::vector<Key> KeysOfRank(const Keys& keys, const BucketOwners& owners, std::uint32_t rank) {
  std::vector<Key> mine;
  for (const auto& item : keys) {
    Key key{};
    if constexpr (requires { item.first; }) {
      key = item.first;
    } else {
      key = item;
    }
    if (owners[BucketOfKey(key)] == rank) mine.push_back(key);
  }
  return mine;
}

// Writes one rank's rows of a table.
inline Result<RankEntry> WriteTable(CheckpointWriter& writer, const CheckpointOfTest& checkpoint,
                                    const TableOfTest& table, std::uint32_t rank) {
  const BucketOwners owners = checkpoint.Owners();
  auto keys = SortByBucket(KeysOfRank(table.rows, owners, rank), BucketOfKey);
  auto erased = SortByBucket(KeysOfRank(table.erased, owners, rank), BucketOfKey);
  auto out =
      writer.BeginTable({.table = TableId{table.id},
                         .options = table.options,
                         .value_type = table.type,
                         .starts = keys.starts,
                         .erased_starts = checkpoint.parent ? std::optional(erased.starts) : std::nullopt});
  if (!out.ok()) return out.status();
  std::vector<float> records;
  for (const Key key : keys.items) {
    const auto& record = table.rows.at(key);
    records.insert(records.end(), record.begin(), record.end());
  }
  if (Status status = out->AppendRecords(records); !status.ok()) return status;
  if (Status status = out->AppendKeys(keys.items); !status.ok()) return status;
  if (checkpoint.parent) {
    if (Status status = out->AppendErased(erased.items); !status.ok()) return status;
  }
  return out->Finish();
}

inline Manifest BareManifest(const CheckpointOfTest& checkpoint) {
  Manifest manifest;
  manifest.id = checkpoint.id;
  manifest.parent = checkpoint.parent;
  manifest.created = checkpoint.created;
  manifest.server_version = "1.2.3";
  manifest.data_lineage = checkpoint.data_lineage;
  manifest.instance = 0xabc;
  manifest.ranks = checkpoint.ranks;
  manifest.round = checkpoint.round;
  manifest.next_table_id = checkpoint.next_table_id;
  manifest.ledger_epoch = 3;
  for (const TableOfTest& table : checkpoint.tables) {
    TableEntry entry;
    entry.id = TableId{table.id};
    entry.options = table.options;
    entry.options.name = TableName("words-" + std::to_string(table.id));
    entry.generation = table.generation;
    entry.steps = table.steps;
    entry.learning_rate = 0.25F;
    entry.owners = checkpoint.Owners();
    entry.value_type = table.type;
    entry.ranks.resize(checkpoint.ranks);
    manifest.tables.push_back(std::move(entry));
  }
  return manifest;
}

// Writes all files of one rank, and adds them to the manifest.
inline Status WriteRank(FileSystem& files, const CheckpointOfTest& checkpoint, std::uint32_t rank,
                        Manifest& manifest) {
  auto writer = CheckpointWriter::Begin(files, kCheckpoints, checkpoint.id, rank, checkpoint.block_bytes);
  if (!writer.ok()) return writer.status();
  for (std::size_t i = 0; i < checkpoint.tables.size(); ++i) {
    auto entry = WriteTable(*writer, checkpoint, checkpoint.tables[i], rank);
    if (!entry.ok()) return entry.status();
    manifest.tables[i].ranks[rank] = std::move(*entry);
  }
  if (rank == 0) {
    auto ledger = writer->WriteLedger(std::as_bytes(std::span<const char>(checkpoint.ledger)));
    if (!ledger.ok()) return ledger.status();
    manifest.ledger = std::move(*ledger);
  }
  return writer->Finish();
}

// Writes a checkpoint and publishes it.
inline Result<Manifest> Save(FileSystem& files, const CheckpointOfTest& checkpoint) {
  Manifest manifest = BareManifest(checkpoint);
  for (std::uint32_t rank = 0; rank < checkpoint.ranks; ++rank) {
    if (Status status = WriteRank(files, checkpoint, rank, manifest); !status.ok()) return status;
  }
  if (Status status = PublishCheckpoint(files, kCheckpoints, manifest); !status.ok()) return status;
  return manifest;
}

// Saves it. Fails the test on an error.
inline Manifest MustSave(FileSystem& files, const CheckpointOfTest& checkpoint) {
  return test::Must(Save(files, checkpoint));
}

inline Status MakeCheckpointFolder(FileSystem& files) {
  if (Status status = files.MakeFolder(kCheckpoints); !status.ok()) return status;
  return files.SyncFolder("");
}

// Reads a rank's rows into `rows`, like a server.
inline Status ReadRows(FileSystem& files, const Chain& chain, std::uint32_t table, const BucketOwners& owners,
                       std::uint32_t rank, Rows& rows, std::uint64_t chunk_bytes = 1 << 20) {
  const TableEntry* const entry = chain.back().Find(TableId{table});
  const std::uint32_t width = entry == nullptr ? 1 : WidthOf(entry->options);
  const RowSink sink{.rows = [&](std::span<const Key> keys, std::span<const float> records) -> Status {
                       EXPECT_EQ(records.size(), keys.size() * width);
                       EXPECT_TRUE(keys.size() == 1 || records.size_bytes() <= chunk_bytes);
                       for (std::size_t i = 0; i < keys.size(); ++i) {
                         EXPECT_EQ(owners[BucketOfKey(keys[i])], rank);
                         const auto record = records.subspan(i * width, width);
                         rows[keys[i]] = {record.begin(), record.end()};
                       }
                       return {};
                     },
                     .erase = [&](std::span<const Key> keys) -> Status {
                       for (const Key key : keys) {
                         EXPECT_EQ(owners[BucketOfKey(key)], rank);
                         rows.erase(key);
                       }
                       return {};
                     }};
  return ReadTable(files, kCheckpoints, chain, TableId{table}, owners, BucketOfKey, rank, chunk_bytes, sink);
}

// Reads a table on `ranks` ranks, and returns all their rows together.
inline Result<Rows> ReadAll(FileSystem& files, const Chain& chain, std::uint32_t table, std::uint32_t ranks,
                            const BucketOwners& owners, std::uint64_t chunk_bytes = 1 << 20) {
  Rows all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Rows mine;
    if (Status status = ReadRows(files, chain, table, owners, rank, mine, chunk_bytes); !status.ok())
      return status;
    all.merge(mine);
  }
  return all;
}

inline Result<Rows> ReadAll(FileSystem& files, const Chain& chain, std::uint32_t table) {
  return ReadAll(files, chain, table, 1, EvenOwners(1));
}

// Returns the paths of all files in a folder and its subfolders.
inline std::vector<std::string> FilesBelow(FileSystem& files, const std::string& folder) {
  std::vector<std::string> all;
  const auto names = files.List(folder);
  if (!names.ok()) return all;
  for (const std::string& name : *names) {
    const std::string path = folder + "/" + name;
    if (!files.List(path).ok()) {
      all.push_back(path);
      continue;
    }
    const auto below = FilesBelow(files, path);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

// Returns a checkpoint of two tables on two ranks.
inline CheckpointOfTest TwoTables(const std::string& id, std::uint64_t seed) {
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

// Replaces a file's bytes, and updates the checksums in its manifest.
inline void Forge(SimFiles& files, Manifest& manifest, FileEntry& entry, const std::string& path,
                  const Bytes& bytes) {
  const std::string folder = path.substr(0, path.find_last_of('/'));
  ASSERT_TRUE(files.Remove(path).ok());
  auto writer = test::Must(BlockWriter::Create(files, folder, entry.name, entry.block_bytes));
  ASSERT_TRUE(writer.Append(bytes).ok());
  entry = *writer.Finish();
  files.SetContents(kCheckpoints + "/" + manifest.id + "/manifest.json",
                    BytesOf(test::Must(SerializeManifest(manifest))));
}

// Crashes the files at each operation of `run` in turn, and then simulates a power failure in several ways.
// `prepare` fills the files before, `run` returns whether it finished, and `judge` checks the result.
inline void CrashAtAnyStep(std::uint64_t seeds, const std::function<void(SimFiles&)>& prepare,
                           const std::function<bool(SimFiles&)>& run,
                           const std::function<void(SimFiles&, bool done)>& judge) {
  bool done = false;
  for (std::uint64_t step = 1; !done; ++step) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE("step " + std::to_string(step) + " seed " + std::to_string(seed));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      prepare(files);
      files.CrashAt(files.operations() + step);
      done = run(files);
      files.CrashAt(0);
      files.Crash(seed);
      judge(files, done);
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_LT(step, 200);
  }
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { EXPECT_TRUE(MakeCheckpointFolder(files_).ok()); }

  SimFiles files_;
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_DURABILITY_CHECKPOINT_RIG_H_
