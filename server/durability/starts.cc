#include "server/durability/starts.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/durability/bounds.h"
#include "server/durability/checked_json.h"
#include "server/durability/json_fields.h"
#include "server/durability/manifest.h"

namespace slotwise {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t kFormatVersion = 1;

FoundTable ParseTable(Fields fields) {
  FoundTable table;
  table.lineage = fields.HexNumber("lineage");
  table.steps = fields.Number("steps", 0, kMaxSteps);
  fields.RefuseOthers();
  return table;
}

ServerStarts ParseGroup(Fields fields) {
  ServerStarts starts;
  const json& incarnations = fields.Array("incarnations");
  if (incarnations.empty() || incarnations.size() > kMostStarts)
    fields.Complain("incarnations", "does not have 1 to " + std::to_string(kMostStarts) + " elements");
  for (const json& each : incarnations) {
    std::uint64_t incarnation = 0;
    if (!each.is_string() || !ParseHex(each.get<std::string>(), incarnation))
      fields.Complain("incarnations", "has what is not 16 hexadecimal digits");
    starts.incarnations.push_back(incarnation);
  }
  const json& tables = fields.Array("tables");
  fields.RefuseOthers();
  if (tables.size() > kMaxTablesInCheckpoint)
    fields.Complain("tables", "has more than " + std::to_string(kMaxTablesInCheckpoint) + " elements");
  for (std::size_t i = 0; i < tables.size() && fields.error().empty(); ++i) {
    const std::string where = fields.Path("tables[" + std::to_string(i) + "].");
    starts.tables.push_back(ParseTable({tables[i], where, fields.error()}));
  }
  return starts;
}

void KeepNewest(auto& all) {
  if (all.size() > kMostStarts) all.erase(all.begin());
}

}  // namespace

void Starts::Add(std::uint64_t incarnation, std::vector<FoundTable> tables) {
  std::ranges::sort(tables, {}, &FoundTable::lineage);
  if (starts_.empty() || starts_.back().tables != tables)
    starts_.push_back({.incarnations = {}, .tables = std::move(tables)});
  starts_.back().incarnations.push_back(incarnation);
  KeepNewest(starts_.back().incarnations);
  KeepNewest(starts_);
}

std::uint64_t Starts::LostFrom(std::uint64_t lineage, std::uint64_t incarnation, std::uint64_t step) const {
  if (starts_.empty()) return 0;
  auto later = std::prev(starts_.end());
  for (auto some = starts_.begin(); some != starts_.end(); ++some) {
    if (std::ranges::find(some->incarnations, incarnation) == some->incarnations.end()) continue;
    later = some->incarnations.back() == incarnation ? std::next(some) : some;
  }
  std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
  for (; later != starts_.end(); ++later) {
    const auto found = std::ranges::lower_bound(later->tables, lineage, {}, &FoundTable::lineage);
    if (found != later->tables.end() && found->lineage == lineage) kept = std::min(kept, found->steps);
  }
  return step > kept ? kept + 1 : 0;
}

std::string SerializeStarts(const Starts& starts) {
  ordered_json object = {{"format_version", kFormatVersion}, {"starts", ordered_json::array()}};
  for (const ServerStarts& some : starts.all()) {
    ordered_json incarnations = ordered_json::array(), tables = ordered_json::array();
    for (const std::uint64_t incarnation : some.incarnations) incarnations.push_back(Hex(incarnation));
    for (const FoundTable& table : some.tables)
      tables.push_back({{"lineage", Hex(table.lineage)}, {"steps", table.steps}});
    object["starts"].push_back({{"incarnations", std::move(incarnations)}, {"tables", std::move(tables)}});
  }
  return SerializeChecked(object).text;
}

Result<Starts> ParseStarts(std::string_view text, const std::string& path) {
  const auto object = ParseChecked(text, path);
  if (!object.ok()) return object.status();
  std::string error;
  Fields fields(*object, "", error);
  fields.Know("checksum");
  if (const std::uint64_t version = fields.Number("format_version"); version != kFormatVersion) {
    fields.Complain("format_version", "is " + std::to_string(version) +
                                          ", and this version of Slotwise reads " +
                                          std::to_string(kFormatVersion));
  }
  const json& all = fields.Array("starts");
  fields.RefuseOthers();
  if (all.size() > kMostStarts)
    fields.Complain("starts", "has more than " + std::to_string(kMostStarts) + " elements");
  Starts starts;
  for (std::size_t i = 0; i < all.size() && error.empty(); ++i) {
    const ServerStarts some = ParseGroup({all[i], "starts[" + std::to_string(i) + "].", error});
    for (const std::uint64_t incarnation : some.incarnations) starts.Add(incarnation, some.tables);
  }
  if (!error.empty()) return FailedPrecondition(path + ": " + error);
  return starts;
}

Result<Starts> ReadStarts(FileSystem& files, const std::string& path) {
  const auto text = ReadCheckedText(files, path);
  if (!text.ok()) return text.status();
  return ParseStarts(*text, path);
}

}  // namespace slotwise
