#include "server/durability/manifest.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "server/durability/bounds.h"
#include "server/durability/checked_fields.h"
#include "server/durability/hex.h"
#include "server/durability/options_text.h"
#include "slotwise/v1/manifest.pb.h"
#include "wire/table_options_proto.h"

namespace slotwise {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxVersionLength = 64;
constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{64} << 20;  // a reader keeps a block of each open file
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 50;
constexpr std::uint64_t kMaxNextTableId = 0xFFFF'0000;  // there are ids for more tables
constexpr std::size_t kRoundDigits = 12;
constexpr std::size_t kHexDigits = 16;

void ListFile(CheckedFields& fields, FileEntry& file) {
  std::string digits;
  for (const std::uint64_t checksum : file.checksums) digits += Hex(checksum);
  fields.Text("name", file.name);
  fields.Number("bytes", file.bytes, 0, kMaxFileBytes);
  fields.Number("block_bytes", file.block_bytes, 1, kMaxBlockBytes);
  fields.Text("block_xxh3", digits);
  if (!fields.reads()) return;
  const std::uint64_t blocks = BlocksOf(file.bytes, file.block_bytes);
  if (digits.size() / kHexDigits != blocks || digits.size() % kHexDigits != 0) {
    return fields.Complain("block_xxh3", "has " + std::to_string(digits.size()) +
                                             " digits, not 16 for each of " + std::to_string(blocks) +
                                             " blocks");
  }
  file.checksums.resize(blocks);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    if (!ParseHex(digits.substr(block * kHexDigits, kHexDigits), file.checksums[block]))
      fields.Complain("block_xxh3", "has other characters than hexadecimal digits");
  }
}

// Every file has one name and one size that are right, so a name cannot lead out of its folder.
void CheckFile(CheckedFields& fields, const std::string& where, const FileEntry& file,
               const std::string& name, std::uint64_t bytes) {
  if (file.name != name) fields.Complain(where + ".name", "is '" + file.name + "', not '" + name + "'");
  if (file.bytes != bytes) {
    fields.Complain(where + ".bytes", "is " + std::to_string(file.bytes) + ", but " + name + " has " +
                                          std::to_string(bytes) + " by its shape");
  }
}

void ListRank(CheckedFields& fields, RankEntry& rank) {
  fields.Number("rows", rank.rows, 0, kMaxRowsPerShard);
  if (fields.Has("erased", rank.erased.has_value())) {
    rank.erased = rank.erased.value_or(0);
    fields.Number("erased", *rank.erased, 0, TableOptions::kMaxMaxRows);
  }
  fields.Float("largest_error", rank.largest_error);
  fields.Objects("files", rank.files, ListFile);
}

void CheckRank(CheckedFields& fields, const TableEntry& table, bool is_delta) {
  const RankEntry& rank = table.ranks.back();
  const auto number = static_cast<std::uint32_t>(table.ranks.size() - 1);
  if (rank.erased.has_value() != is_delta)
    return fields.Complain("erased", is_delta ? "is missing in a delta" : "is there, but this is a base");
  if (!(rank.largest_error >= 0)) fields.Complain("largest_error", "is below 0");
  const auto arrays = ArraysOf(table.options, table.value_type, number, rank.rows, rank.erased).All();
  if (rank.files.size() != arrays.size()) {
    return fields.Complain("files", "has " + std::to_string(rank.files.size()) + " elements, not " +
                                        std::to_string(arrays.size()));
  }
  for (std::size_t i = 0; i < arrays.size(); ++i)
    CheckFile(fields, "files[" + std::to_string(i) + "]", rank.files[i], arrays[i].name, arrays[i].bytes());
}

// Buckets, one behind the other, that one rank owns.
struct Run {
  std::uint32_t rank = 0;
  std::uint32_t buckets = 0;
};

void ListRun(CheckedFields& fields, Run& run) {
  fields.Number("rank", run.rank);
  fields.Number("buckets", run.buckets);
}

void ListOwners(CheckedFields& fields, BucketOwners& owners, std::uint32_t ranks) {
  std::vector<Run> runs;
  for (auto run = owners.begin(); run != owners.end() && fields.writes();) {
    const auto end = std::find_if(run, owners.end(), [&](std::uint16_t owner) { return owner != *run; });
    runs.push_back({.rank = *run, .buckets = static_cast<std::uint32_t>(end - run)});
    run = end;
  }
  fields.Objects("bucket_owners", runs, ListRun, kBucketCount);
  if (!fields.reads()) return;
  std::uint32_t next = 0;
  for (const Run& run : runs) {
    if (run.rank >= ranks || run.buckets == 0 || run.buckets > kBucketCount - next) {
      return fields.Complain("bucket_owners", "has a run that does not fit " + std::to_string(ranks) +
                                                  " ranks and 4096 buckets");
    }
    std::fill_n(owners.begin() + next, run.buckets, static_cast<std::uint16_t>(run.rank));
    next += run.buckets;
  }
  if (next != kBucketCount)
    fields.Complain("bucket_owners", "has " + std::to_string(next) + " buckets, not 4096");
}

void ListOptions(CheckedFields& fields, const std::string& field, TableOptions& options) {
  if (fields.writes()) return fields.Written(field).CopyFrom(ToProto(options));
  auto wire = dynamic_cast<const v1::TableOptions&>(fields.Found(field));
  const TableName name(wire.name());
  // A candidates' table has a name that is no client's.
  if (IsOfCandidates(name.view())) wire.mutable_name()->resize(wire.name().size() - kCandidatesSuffix.size());
  const Result<TableOptions> read = FromProto(wire);
  if (!read.ok()) return fields.Complain(field, "cannot make a table: " + read.status().message());
  options = *read;
  options.name = name;
}

void ListExpiry(CheckedFields& fields, Expiry& expiry) {
  fields.Number("swept_steps", expiry.swept_steps, 0, kMaxSteps);
  const auto list_mark = [](CheckedFields& of, Expiry::Mark& mark) {
    of.Number("seconds", mark.seconds, 0, Expiry::kMostSeconds);
    of.Number("steps", mark.steps, 0, kMaxSteps);
  };
  fields.Objects("marks", expiry.marks, list_mark, Expiry::kMostMarks);
  const auto ascends = [&](auto of) { return std::ranges::is_sorted(expiry.marks, {}, of); };
  if (!ascends(&Expiry::Mark::seconds) || !ascends(&Expiry::Mark::steps))
    fields.Complain("marks", "do not ascend");
}

void ListTable(CheckedFields& fields, TableEntry& table, const Manifest& manifest,
               std::uint64_t format_version) {
  std::uint32_t id = Value(table.id);
  fields.Number("id", id, 1);
  table.id = TableId{id};
  if (format_version == 1) {
    fields.Object("flat_options", table.options, ListFlatOptions);
  } else {
    ListOptions(fields, "options", table.options);
  }
  if (fields.Has("made_with", table.made.has_value())) {
    if (!table.made) table.made.emplace();
    ListOptions(fields, "made_with", *table.made);
    if (!DifferByAlteration(*table.made, table.options))
      fields.Complain("made_with", "is no table that can be altered to the one of options");
  }
  fields.HexNumber("lineage", table.generation);
  if (table.generation == 0) fields.Complain("lineage", "is 0, which no table has");
  fields.Number("steps", table.steps, 0, kMaxSteps);
  fields.Float("learning_rate", table.learning_rate);
  if (const Status status = ValidateLearningRate(table.learning_rate); !status.ok())
    fields.Complain("learning_rate", "is out of range: " + status.message());
  if (fields.Has("expiry", table.options.expires())) {
    fields.Object("expiry", table.expiry, ListExpiry);
    if (!table.options.expires()) fields.Complain("expiry", "is there, but the table's rows never expire");
  } else if (table.options.expires()) {
    fields.Complain("expiry", "is missing in a table whose rows expire");
  }
  ListOwners(fields, table.owners, manifest.ranks);
  fields.Kind("value_type", table.value_type);
  fields.Objects("ranks", table.ranks, [&](CheckedFields& of_rank, RankEntry& rank) {
    ListRank(of_rank, rank);
    if (of_rank.reads()) CheckRank(of_rank, table, manifest.is_delta());
  });
  if (table.ranks.size() != manifest.ranks) {
    fields.Complain("ranks", "has " + std::to_string(table.ranks.size()) + " elements, not " +
                                 std::to_string(manifest.ranks));
  }
}

void ListId(CheckedFields& fields, std::string& id) {
  fields.Text("id", id);
  if (!IsCheckpointId(id)) fields.Complain("id", "is '" + id + "', which no checkpoint can have");
}

void ListName(CheckedFields& fields, CheckpointName& name) {
  ListId(fields, name.id);
  fields.HexNumber("checksum", name.checksum);
}

// The choice of a checkpoint goes by its round, and skips the rounds of the journal up to that one.
void CheckOrigin(CheckedFields& fields, const Manifest& manifest) {
  const auto origin = OriginOf(manifest.id);
  if (!origin) return;
  if (origin->round != manifest.round) {
    fields.Complain("round", "is " + std::to_string(manifest.round) + ", but the id says " +
                                 std::to_string(origin->round));
  }
  if (origin->instance != manifest.instance)
    fields.Complain("incarnation",
                    "is " + Hex(manifest.instance) + ", but the id says " + Hex(origin->instance));
}

// A table that counts candidates, and no other, has a table of these with a higher id.
void CheckCandidates(CheckedFields& fields, const std::vector<TableEntry>& tables) {
  std::map<std::string, TableOptions, std::less<>> due;
  for (const TableEntry& table : tables) {
    const TableOptions& options = table.options;
    const std::string name = options.name.str();
    if (options.has_candidates()) due.emplace(name + std::string(kCandidatesSuffix), CandidatesOf(options));
    if (!IsOfCandidates(name)) continue;
    const auto found = due.find(name);
    if (found == due.end() || !(found->second == options))
      return fields.Complain("tables", "has " + name + ", of no table before it that counts candidates so");
    due.erase(found);
  }
  if (!due.empty()) fields.Complain("tables", "lacks " + due.begin()->first);
}

void ListManifest(CheckedFields& fields, Manifest& manifest) {
  if (fields.reads()) fields.HexNumber("checksum", manifest.checksum);
  const std::uint64_t format_version = fields.Version(kManifestVersion, kOldestManifestVersion);
  ListId(fields, manifest.id);
  std::string kind = manifest.is_delta() ? "delta" : "base";
  fields.Text("kind", kind);
  if (kind != "base" && kind != "delta") fields.Complain("kind", "is neither 'base' nor 'delta'");
  fields.Optional("parent", manifest.parent, ListName);
  if (manifest.is_delta() != (kind == "delta"))
    fields.Complain("parent", manifest.is_delta() ? "is there, but this is a base" : "is missing in a delta");
  fields.Optional("folds", manifest.folds, ListName);
  if (manifest.folds && manifest.is_delta()) fields.Complain("folds", "is there, but this is a delta");
  fields.Number("created", manifest.created, 0, kMaxCreated);
  fields.Text("server_version", manifest.server_version);
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (manifest.server_version.empty() || manifest.server_version.size() > kMaxVersionLength ||
      !std::ranges::all_of(manifest.server_version, is_printable)) {
    fields.Complain("server_version", "does not have 1 to 64 printable characters");
  }
  fields.HexNumber("data_lineage", manifest.data_lineage);
  fields.HexNumber("incarnation", manifest.instance);
  fields.Number("ranks", manifest.ranks, 1, kBucketCount);
  fields.Number("round", manifest.round, 0, kMaxRound);
  CheckOrigin(fields, manifest);
  fields.Number("next_table_id", manifest.next_table_id, 0, kMaxNextTableId);
  fields.Number("ledger_epoch", manifest.ledger_epoch, 0, kMaxEpoch);
  fields.Object("ledger", manifest.ledger, ListFile);
  if (manifest.ledger.bytes > kMaxLedgerBytes)
    fields.Complain("ledger.bytes", "is above " + std::to_string(kMaxLedgerBytes));
  CheckFile(fields, "ledger", manifest.ledger, std::string(kLedgerName), manifest.ledger.bytes);
  std::set<std::string, std::less<>> names;
  const auto list_table = [&](CheckedFields& of, TableEntry& table) {
    ListTable(of, table, manifest, format_version);
    if (Value(table.id) >= manifest.next_table_id) of.Complain("id", "is not below next_table_id");
    if (!names.empty() && of.reads() && table.id <= std::prev(manifest.tables.end(), 2)->id)
      of.Complain("id", "is not above the id before it");
    if (!names.insert(table.options.name.str()).second)
      of.Complain("options.name", "is that of a table before it");
  };
  fields.Objects("tables", manifest.tables, list_table, kMaxTablesInCheckpoint);
  if (fields.reads()) CheckCandidates(fields, manifest.tables);
}

// Returns the text of a manifest of an earlier version with the fields of later ones.
std::string FromEarlier(std::string_view text, std::uint64_t version) {
  json manifest = json::parse(text);
  for (json& table : manifest["tables"]) {
    if (!table.is_object()) continue;
    if (version == 1) {
      table["flat_options"] = table["options"];
      table.erase("options");
    }
    for (json& run : table["bucket_owners"]) {
      if (run.is_array() && run.size() == 2) run = {{"rank", run[0]}, {"buckets", run[1]}};
    }
  }
  return manifest.dump();
}

}  // namespace

bool IsCheckpointId(std::string_view id) {
  const auto is_legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !id.empty() && id.size() <= kMaxCheckpointId && id.front() != '-' &&
         std::ranges::all_of(id, is_legal);
}

std::string CheckpointId(const CheckpointOrigin& origin) {
  std::string round = std::to_string(origin.round);
  round.insert(0, kRoundDigits - std::min(kRoundDigits, round.size()), '0');
  return round + "-" + Hex(origin.instance);
}

std::optional<CheckpointOrigin> OriginOf(std::string_view id) {
  CheckpointOrigin origin;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), origin.round);
  if (error != std::errc()) return std::nullopt;
  const auto dash = static_cast<std::size_t>(end - id.data());
  if (dash >= id.size() || !ParseHex(std::string(id.substr(dash + 1, kHexDigits)), origin.instance))
    return std::nullopt;
  const std::string head = CheckpointId(origin);
  const bool is_servers = id.starts_with(head) && (id.size() == head.size() || id[head.size()] == '-');
  return is_servers ? std::optional(origin) : std::nullopt;
}

const TableEntry* Manifest::Find(TableId table) const {
  const auto found = std::ranges::lower_bound(tables, table, {}, &TableEntry::id);
  return found != tables.end() && found->id == table ? &*found : nullptr;
}

const TableEntry& Manifest::CandidatesOf(const TableEntry& table) const {
  const std::string name = table.options.name.str().append(kCandidatesSuffix);
  return *std::ranges::find_if(tables,
                               [&](const TableEntry& entry) { return entry.options.name.view() == name; });
}

std::uint64_t Manifest::Bytes() const {
  std::uint64_t bytes = ledger.bytes;
  for (const TableEntry& table : tables) {
    for (const RankEntry& rank : table.ranks) {
      for (const FileEntry& file : rank.files) bytes += file.bytes;
    }
  }
  return bytes;
}

std::uint64_t Manifest::Rows() const {
  std::uint64_t rows = 0;
  for (const TableEntry& table : tables) {
    if (IsOfCandidates(table.options.name.view())) continue;
    for (const RankEntry& rank : table.ranks) rows += rank.rows;
  }
  return rows;
}

Result<std::string> SerializeManifest(Manifest& manifest) {
  v1::Manifest message;
  CheckedFields::Write(message, manifest, ListManifest);
  message.set_checksum(Hex(0));  // which the list reads; the text has its own
  const auto checked = CheckMessage<Manifest>(message, std::string(kManifestName), ListManifest);
  if (!checked.ok()) return checked.status();
  message.clear_checksum();
  return SerializeChecked(message, manifest.checksum);
}

Result<Manifest> ParseManifest(std::string_view text, const std::string& path) {
  const auto version = VersionOfChecked(text, path);
  if (!version.ok()) return version.status();
  v1::Manifest message;
  if (Status status = ParseMessage(
          *version < kManifestVersion ? FromEarlier(text, *version) : std::string(text), path, message);
      !status.ok())
    return status;
  return CheckMessage<Manifest>(message, path, ListManifest);
}

std::string SerializeRankEntry(const RankEntry& entry) {
  v1::ManifestRank message;
  CheckedFields::Write(message, entry, ListRank);
  return message.SerializeAsString();
}

Result<RankEntry> ParseRankEntry(std::string_view bytes) {
  constexpr auto kWhere = "a rank's part of the manifest";
  v1::ManifestRank message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return FailedPrecondition(std::string(kWhere) + " is no message");
  return CheckMessage<RankEntry>(message, kWhere, ListRank);
}

}  // namespace slotwise
