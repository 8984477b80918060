// Manifest: what a checkpoint is, and all that a reader must know to trust its files.
//
// manifest.json is the checked text (checked_fields.h) of the message Manifest of manifest.proto. This struct
// has the message's fields in Slotwise's own types, and ListManifest checks each.
// Errors: FAILED_PRECONDITION, naming the file and the field.
// Thread-safety: plain values and free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_MANIFEST_H_
#define SLOTWISE_SERVER_DURABILITY_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/durability/block_file.h"
#include "server/durability/expiry.h"
#include "server/durability/table_arrays.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// Versions 1, which 0.1.0 wrote, and 2 have pairs for runs of buckets; version 1 has other options of tables
// (options_text.h).
inline constexpr std::uint64_t kManifestVersion = 3;
inline constexpr std::uint64_t kOldestManifestVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kLedgerName = "ledger.bin";
inline constexpr std::uint32_t kMaxTablesInCheckpoint = 65536;

inline constexpr std::uint64_t kMaxLedgerBytes = std::uint64_t{2} << 30;
inline constexpr std::uint64_t kMaxCreated = 253'402'300'799;  // the end of the year 9999

// A checkpoint's id has 1 to 64 of the characters A-Z a-z 0-9 _ - , and does not begin with '-'.
inline constexpr std::size_t kMaxCheckpointId = 64;
bool IsCheckpointId(std::string_view id);

// A server's checkpoints have ids that begin with their round, in 12 digits or more, and the server instance,
// in 16 hexadecimal digits: "000000000042-0123456789abcdef". What folds a checkpoint has its id, and more
// behind another '-'.
struct CheckpointOrigin {
  std::uint64_t round = 0;
  std::uint64_t instance = 0;
  friend bool operator==(const CheckpointOrigin&, const CheckpointOrigin&) = default;
};
std::string CheckpointId(const CheckpointOrigin& origin);
// Returns what an id says; nothing if it is none that a server gives.
std::optional<CheckpointOrigin> OriginOf(std::string_view id);

// Names a checkpoint and the bytes of its manifest.
struct CheckpointName {
  std::string id;
  std::uint64_t checksum = 0;  // Manifest::checksum

  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

// What one rank wrote of a table.
struct RankEntry {
  std::uint64_t rows = 0;
  std::optional<std::uint64_t> erased;  // deltas: how many keys
  // The largest |value written − value| of this rank's rows, 0 if they are float32. In a compacted
  // checkpoint, the largest of the chain's.
  float largest_error = 0.0F;
  std::vector<FileEntry> files;  // as TableArrays::All() has them

  friend bool operator==(const RankEntry&, const RankEntry&) = default;
};

struct TableEntry {
  TableId id{0};
  TableOptions options;
  std::optional<TableOptions> made = {};  // the options that the table was made with, if it was altered
  std::uint64_t generation = 0;
  std::uint64_t steps = 0;
  float learning_rate = 0.0F;  // the options', or the one that was set since
  Expiry expiry;               // of a table whose rows expire
  BucketOwners owners{};
  DataType value_type = DataType::kFloat32;  // of rows; state is float32
  std::vector<RankEntry> ranks;              // [Manifest::ranks]

  friend bool operator==(const TableEntry&, const TableEntry&) = default;
};

struct Manifest {
  std::string id;
  std::optional<CheckpointName> parent;  // a delta's; none for a base
  // A base that a chain was compacted into: the chain's last checkpoint, whose state it has. A delta whose
  // parent was that one may follow this one.
  std::optional<CheckpointName> folds;
  std::uint64_t created = 0;   // when the state was this one: seconds since 1970, by rank 0's clock
  std::string server_version;  // 1 to 64 printable characters
  std::uint64_t data_lineage = 0;
  std::uint64_t instance = 0;
  std::uint32_t ranks = 1;
  std::uint64_t round = 0;  // all rounds up to this one are in
  std::uint32_t next_table_id = 0;
  std::uint64_t ledger_epoch = 0;
  FileEntry ledger;
  std::vector<TableEntry> tables;  // by ascending id
  // Of the manifest's text. Serialize and Parse set it; it is no part of the text behind the first line.
  std::uint64_t checksum = 0;

  bool is_delta() const { return parent.has_value(); }
  CheckpointName name() const { return {.id = id, .checksum = checksum}; }
  // Returns null if there is no such table.
  const TableEntry* Find(TableId table) const;
  // Returns the entry of the candidates of `table`. REQUIRES: the table has candidates.
  const TableEntry& CandidatesOf(const TableEntry& table) const;
  // Of its own files, of all ranks; not of those that it builds on.
  std::uint64_t Bytes() const;
  std::uint64_t Rows() const;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Returns the text of manifest.json and sets `manifest.checksum`.
// FAILED_PRECONDITION: ParseManifest would refuse the text.
Result<std::string> SerializeManifest(Manifest& manifest);

// `path` is for messages.
Result<Manifest> ParseManifest(std::string_view text, const std::string& path);

// A rank tells rank 0 by the bytes of a message ManifestRank what the rank wrote.
std::string SerializeRankEntry(const RankEntry& entry);
Result<RankEntry> ParseRankEntry(std::string_view bytes);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_MANIFEST_H_
