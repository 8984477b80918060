#include "server/durability/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "server/durability/bounds.h"
#include "server/durability/checked_json.h"
#include "server/durability/json_fields.h"
#include "server/durability/table_options_json.h"

namespace slotwise {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMaxVersionLength = 64;
constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{64} << 20;  // a reader keeps a block of each open file
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 50;
constexpr std::uint64_t kMaxTableId = 0xFFFF'FFFF;
constexpr std::uint64_t kMaxNextTableId = 0xFFFF'0000;  // there are ids for more tables
constexpr std::size_t kRoundDigits = 12;
constexpr std::size_t kHexDigits = 16;

// --- Writing

ordered_json ToJson(const FileEntry& file) {
  std::string checksums;
  for (const std::uint64_t checksum : file.checksums) checksums += Hex(checksum);
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"block_bytes", file.block_bytes},
          {"block_xxh3", std::move(checksums)}};
}

ordered_json ToJson(const RankEntry& rank) {
  ordered_json object = {{"rows", rank.rows}};
  if (rank.erased) object["erased"] = *rank.erased;
  object["largest_error"] = double{rank.largest_error};
  object["files"] = ordered_json::array();
  for (const FileEntry& file : rank.files) object["files"].push_back(ToJson(file));
  return object;
}

// Runs of buckets that one rank owns: [[rank, buckets], ...].
ordered_json ToJson(const BucketOwners& owners) {
  ordered_json runs = ordered_json::array();
  for (auto run = owners.begin(); run != owners.end();) {
    const auto end = std::find_if(run, owners.end(), [&](std::uint16_t owner) { return owner != *run; });
    runs.push_back(ordered_json::array({*run, end - run}));
    run = end;
  }
  return runs;
}

ordered_json ToJson(const TableEntry& table) {
  ordered_json object = {{"id", Value(table.id)},
                         {"options", slotwise::ToJson(table.options)},
                         {"lineage", Hex(table.lineage)},
                         {"steps", table.steps},
                         {"learning_rate", double{table.learning_rate}},
                         {"bucket_owners", ToJson(table.owners)},
                         {"value_type", std::string(ToString(table.value_type))},
                         {"ranks", ordered_json::array()}};
  for (const RankEntry& rank : table.ranks) object["ranks"].push_back(ToJson(rank));
  return object;
}

ordered_json ToJson(const std::optional<CheckpointName>& name) {
  if (!name) return nullptr;
  return {{"id", name->id}, {"checksum", Hex(name->checksum)}};
}

ordered_json ToJson(const Manifest& manifest) {
  ordered_json object = {{"format_version", kManifestVersion},
                         {"id", manifest.id},
                         {"kind", manifest.is_delta() ? "delta" : "base"},
                         {"parent", ToJson(manifest.parent)},
                         {"folds", ToJson(manifest.folds)},
                         {"created", manifest.created},
                         {"server_version", manifest.server_version},
                         {"data_lineage", Hex(manifest.data_lineage)},
                         {"incarnation", Hex(manifest.incarnation)},
                         {"ranks", manifest.ranks},
                         {"round", manifest.round},
                         {"next_table_id", manifest.next_table_id},
                         {"ledger_epoch", manifest.ledger_epoch},
                         {"ledger", ToJson(manifest.ledger)},
                         {"tables", ordered_json::array()}};
  for (const TableEntry& table : manifest.tables) object["tables"].push_back(ToJson(table));
  return object;
}

// --- Reading

FileEntry ParseFile(Fields fields) {
  FileEntry file;
  file.name = fields.Text("name");
  file.bytes = fields.Number("bytes", 0, kMaxFileBytes);
  file.block_bytes = fields.Number("block_bytes", 1, kMaxBlockBytes);
  const std::string digits = fields.Text("block_xxh3");
  fields.RefuseOthers();
  constexpr std::size_t kDigits = 16;
  const std::uint64_t blocks = BlocksOf(file.bytes, file.block_bytes);
  if (digits.size() / kDigits != blocks || digits.size() % kDigits != 0) {
    fields.Complain("block_xxh3", "has " + std::to_string(digits.size()) + " digits, not 16 for each of " +
                                      std::to_string(blocks) + " blocks");
    return file;
  }
  file.checksums.resize(blocks);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    if (!ParseHex(digits.substr(block * kDigits, kDigits), file.checksums[block]))
      fields.Complain("block_xxh3", "has other characters than hexadecimal digits");
  }
  return file;
}

// Every file has one name and one size that are right, so a name cannot lead out of its folder.
void CheckFile(Fields& fields, const std::string& where, const FileEntry& file, const std::string& name,
               std::optional<std::uint64_t> bytes) {
  if (file.name != name) fields.Complain(where + ".name", "is '" + file.name + "', not '" + name + "'");
  if (bytes && file.bytes != *bytes) {
    fields.Complain(where + ".bytes", "is " + std::to_string(file.bytes) + ", but " + name + " has " +
                                          std::to_string(*bytes) + " by its shape");
  }
}

RankEntry ParseRank(Fields fields) {
  RankEntry rank;
  rank.rows = fields.Number("rows", 0, kMaxRowsPerShard);
  if (fields.Has("erased")) rank.erased = fields.Number("erased", 0, TableOptions::kMaxMaxRows);
  rank.largest_error = fields.Float("largest_error");
  const json& files = fields.Array("files");
  fields.RefuseOthers();
  for (std::size_t i = 0; i < files.size() && fields.error().empty(); ++i) {
    rank.files.push_back(
        ParseFile({files[i], fields.Path("files[" + std::to_string(i) + "]."), fields.error()}));
  }
  return rank;
}

void CheckRank(Fields& fields, std::uint32_t number, const TableEntry& table, const RankEntry& rank,
               bool is_delta) {
  const std::string where = "ranks[" + std::to_string(number) + "]";
  if (rank.erased.has_value() != is_delta) {
    fields.Complain(where + ".erased", is_delta ? "is missing in a delta" : "is there, but this is a base");
    return;
  }
  if (!(rank.largest_error >= 0)) fields.Complain(where + ".largest_error", "is below 0");
  const auto arrays = ArraysOf(table.options, table.value_type, number, rank.rows, rank.erased).All();
  if (rank.files.size() != arrays.size()) {
    fields.Complain(where + ".files", "has " + std::to_string(rank.files.size()) + " elements, not " +
                                          std::to_string(arrays.size()));
    return;
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    CheckFile(fields, where + ".files[" + std::to_string(i) + "]", rank.files[i], arrays[i].name,
              arrays[i].bytes());
  }
}

BucketOwners ParseOwners(Fields& fields, std::uint32_t ranks) {
  BucketOwners owners{};
  std::uint64_t next = 0;
  for (const json& run : fields.Array("bucket_owners")) {
    const bool is_pair =
        run.is_array() && run.size() == 2 && run[0].is_number_unsigned() && run[1].is_number_unsigned();
    const std::uint64_t owner = is_pair ? run[0].get<std::uint64_t>() : ranks;
    const std::uint64_t buckets = is_pair ? run[1].get<std::uint64_t>() : 0;
    if (owner >= ranks || buckets == 0 || buckets > kBucketCount - next) {
      fields.Complain("bucket_owners", "has a run that is no [rank, buckets] of " + std::to_string(ranks) +
                                           " ranks and 4096 buckets");
      return owners;
    }
    std::fill_n(owners.begin() + static_cast<std::ptrdiff_t>(next), buckets,
                static_cast<std::uint16_t>(owner));
    next += buckets;
  }
  if (next != kBucketCount)
    fields.Complain("bucket_owners", "has " + std::to_string(next) + " buckets, not 4096");
  return owners;
}

DataType ParseValueType(Fields& fields) {
  const std::string text = fields.Text("value_type");
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    if (text == ToString(type)) return type;
  }
  fields.Complain("value_type", "is '" + text + "', which this version does not know");
  return DataType::kFloat32;
}

TableEntry ParseTable(Fields fields, const Manifest& manifest) {
  TableEntry table;
  table.id = TableId{static_cast<std::uint32_t>(fields.Number("id", 1, kMaxTableId))};
  table.options = ParseTableOptions(fields.Object("options"));
  table.lineage = fields.HexNumber("lineage");
  if (table.lineage == 0) fields.Complain("lineage", "is 0, which no table has");
  table.steps = fields.Number("steps", 0, kMaxSteps);
  table.learning_rate = fields.Float("learning_rate");
  if (const Status status = ValidateLearningRate(table.learning_rate); !status.ok())
    fields.Complain("learning_rate", "is out of range: " + status.message());
  table.owners = ParseOwners(fields, manifest.ranks);
  table.value_type = ParseValueType(fields);
  const json& ranks = fields.Array("ranks");
  fields.RefuseOthers();
  if (ranks.size() != manifest.ranks) {
    fields.Complain(
        "ranks", "has " + std::to_string(ranks.size()) + " elements, not " + std::to_string(manifest.ranks));
  }
  for (std::uint32_t rank = 0; rank < ranks.size() && fields.error().empty(); ++rank) {
    table.ranks.push_back(
        ParseRank({ranks[rank], fields.Path("ranks[" + std::to_string(rank) + "]."), fields.error()}));
    if (fields.error().empty()) CheckRank(fields, rank, table, table.ranks.back(), manifest.is_delta());
  }
  return table;
}

std::string ParseId(Fields& fields) {
  std::string id = fields.Text("id");
  if (!IsCheckpointId(id)) fields.Complain("id", "is '" + id + "', which no checkpoint can have");
  return id;
}

// Whoever chooses a checkpoint goes by its round, and skips the rounds of the journal up to that one.
void CheckOrigin(Fields& fields, const Manifest& manifest) {
  const auto origin = OriginOf(manifest.id);
  if (!origin) return;
  if (origin->round != manifest.round) {
    fields.Complain("round", "is " + std::to_string(manifest.round) + ", but the id says " +
                                 std::to_string(origin->round));
  }
  if (origin->incarnation != manifest.incarnation)
    fields.Complain("incarnation",
                    "is " + Hex(manifest.incarnation) + ", but the id says " + Hex(origin->incarnation));
}

std::optional<CheckpointName> ParseName(Fields& fields, const std::string& name, bool wanted) {
  if (!wanted) {
    fields.Know(name);
    return std::nullopt;
  }
  Fields object = fields.Object(name);
  CheckpointName parsed{.id = ParseId(object), .checksum = object.HexNumber("checksum")};
  object.RefuseOthers();
  return parsed;
}

bool IsNull(const json& object, const std::string& name) {
  return object.is_object() && object.contains(name) && object[name].is_null();
}

void ParseTables(Fields& fields, const json& tables, Manifest& manifest) {
  if (tables.size() > kMaxTablesInCheckpoint)
    fields.Complain("tables", "has more than " + std::to_string(kMaxTablesInCheckpoint) + " elements");
  std::set<std::string, std::less<>> names;
  for (std::size_t i = 0; i < tables.size() && fields.error().empty(); ++i) {
    const std::string where = "tables[" + std::to_string(i) + "]";
    TableEntry table = ParseTable({tables[i], where + ".", fields.error()}, manifest);
    if (Value(table.id) >= manifest.next_table_id)
      fields.Complain(where + ".id", "is not below next_table_id");
    if (i > 0 && table.id <= manifest.tables.back().id)
      fields.Complain(where + ".id", "is not above the id before it");
    if (!names.insert(table.options.name.str()).second)
      fields.Complain(where + ".options.name", "is that of a table before it");
    manifest.tables.push_back(std::move(table));
  }
}

Manifest ParseObject(const json& object, std::string& error) {
  Fields fields(object, "", error);
  Manifest manifest;
  manifest.checksum = fields.HexNumber("checksum");
  if (const std::uint64_t version = fields.Number("format_version"); version != kManifestVersion) {
    fields.Complain("format_version", "is " + std::to_string(version) +
                                          ", and this version of Slotwise reads " +
                                          std::to_string(kManifestVersion));
  }
  manifest.id = ParseId(fields);
  const std::string kind = fields.Text("kind");
  if (kind != "base" && kind != "delta") fields.Complain("kind", "is neither 'base' nor 'delta'");
  manifest.parent = ParseName(fields, "parent", kind == "delta" || !IsNull(object, "parent"));
  if (manifest.is_delta() != (kind == "delta")) fields.Complain("parent", "is there, but this is a base");
  manifest.folds = ParseName(fields, "folds", !IsNull(object, "folds"));
  if (manifest.folds && manifest.is_delta()) fields.Complain("folds", "is there, but this is a delta");
  manifest.created = fields.Number("created", 0, kMaxCreated);
  manifest.server_version = fields.Text("server_version");
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (manifest.server_version.empty() || manifest.server_version.size() > kMaxVersionLength ||
      !std::ranges::all_of(manifest.server_version, is_printable)) {
    fields.Complain("server_version", "does not have 1 to 64 printable characters");
  }
  manifest.data_lineage = fields.HexNumber("data_lineage");
  manifest.incarnation = fields.HexNumber("incarnation");
  manifest.ranks = static_cast<std::uint32_t>(fields.Number("ranks", 1, kBucketCount));
  manifest.round = fields.Number("round", 0, kMaxRound);
  CheckOrigin(fields, manifest);
  manifest.next_table_id = static_cast<std::uint32_t>(fields.Number("next_table_id", 0, kMaxNextTableId));
  manifest.ledger_epoch = fields.Number("ledger_epoch", 0, kMaxEpoch);
  manifest.ledger = ParseFile(fields.Object("ledger"));
  if (manifest.ledger.bytes > kMaxLedgerBytes)
    fields.Complain("ledger.bytes", "is above " + std::to_string(kMaxLedgerBytes));
  CheckFile(fields, "ledger", manifest.ledger, std::string(kLedgerName), std::nullopt);
  ParseTables(fields, fields.Array("tables"), manifest);
  fields.RefuseOthers();
  return manifest;
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
  return round + "-" + Hex(origin.incarnation);
}

std::optional<CheckpointOrigin> OriginOf(std::string_view id) {
  CheckpointOrigin origin;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), origin.round);
  if (error != std::errc()) return std::nullopt;
  const auto dash = static_cast<std::size_t>(end - id.data());
  if (dash >= id.size() || !ParseHex(std::string(id.substr(dash + 1, kHexDigits)), origin.incarnation))
    return std::nullopt;
  const std::string head = CheckpointId(origin);
  const bool is_servers = id.starts_with(head) && (id.size() == head.size() || id[head.size()] == '-');
  return is_servers ? std::optional(origin) : std::nullopt;
}

const TableEntry* Manifest::Find(TableId table) const {
  const auto found = std::ranges::lower_bound(tables, table, {}, &TableEntry::id);
  return found != tables.end() && found->id == table ? &*found : nullptr;
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
    for (const RankEntry& rank : table.ranks) rows += rank.rows;
  }
  return rows;
}

Result<std::string> SerializeManifest(Manifest& manifest) {
  CheckedText checked = SerializeChecked(ToJson(manifest));
  manifest.checksum = checked.checksum;
  if (const auto parsed = ParseManifest(checked.text, std::string(kManifestName)); !parsed.ok())
    return parsed.status();
  return std::move(checked.text);
}

Result<Manifest> ParseManifest(std::string_view text, const std::string& path) {
  const auto object = ParseChecked(text, path);
  if (!object.ok()) return object.status();
  std::string error;
  Manifest manifest = ParseObject(*object, error);
  if (!error.empty()) return FailedPrecondition(path + ": " + error);
  return manifest;
}

std::string SerializeRankEntry(const RankEntry& entry) { return ToJson(entry).dump(); }

Result<RankEntry> ParseRankEntry(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  std::string error;
  RankEntry entry = ParseRank({object, "", error});
  if (!error.empty()) return FailedPrecondition("a rank's part of the manifest: " + error);
  return entry;
}

}  // namespace slotwise
