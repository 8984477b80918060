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

ServerStart ParseStart(Fields fields) {
  ServerStart start;
  start.incarnation = fields.HexNumber("incarnation");
  const json& tables = fields.Array("tables");
  fields.RefuseOthers();
  if (tables.size() > kMaxTablesInCheckpoint)
    fields.Complain("tables", "has more than " + std::to_string(kMaxTablesInCheckpoint) + " elements");
  for (std::size_t i = 0; i < tables.size() && fields.error().empty(); ++i) {
    const std::string where = fields.Path("tables[" + std::to_string(i) + "].");
    start.tables.push_back(ParseTable({tables[i], where, fields.error()}));
  }
  return start;
}

}  // namespace

void Starts::Add(ServerStart start) {
  std::ranges::sort(start.tables, {}, &FoundTable::lineage);
  if (!starts_.empty() && starts_.back().tables == start.tables) starts_.pop_back();
  starts_.push_back(std::move(start));
  if (starts_.size() > kMostStarts) starts_.erase(starts_.begin());
}

std::uint64_t Starts::LostFrom(std::uint64_t lineage, std::uint64_t incarnation, std::uint64_t step) const {
  const auto acknowledged = std::ranges::find(starts_, incarnation, &ServerStart::incarnation);
  auto later = acknowledged == starts_.end() ? starts_.begin() : std::next(acknowledged);
  std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
  for (; later != starts_.end(); ++later) {
    const auto found = std::ranges::lower_bound(later->tables, lineage, {}, &FoundTable::lineage);
    if (found != later->tables.end() && found->lineage == lineage) kept = std::min(kept, found->steps);
  }
  return step > kept ? kept + 1 : 0;
}

std::string SerializeStarts(const Starts& starts) {
  ordered_json object = {{"format_version", kFormatVersion}, {"starts", ordered_json::array()}};
  for (const ServerStart& start : starts.all()) {
    ordered_json tables = ordered_json::array();
    for (const FoundTable& table : start.tables)
      tables.push_back({{"lineage", Hex(table.lineage)}, {"steps", table.steps}});
    object["starts"].push_back({{"incarnation", Hex(start.incarnation)}, {"tables", std::move(tables)}});
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
  for (std::size_t i = 0; i < all.size() && error.empty(); ++i)
    starts.Add(ParseStart({all[i], "starts[" + std::to_string(i) + "].", error}));
  if (!error.empty()) return FailedPrecondition(path + ": " + error);
  return starts;
}

Result<Starts> ReadStarts(FileSystem& files, const std::string& path) {
  const auto text = ReadCheckedText(files, path);
  if (!text.ok()) return text.status();
  return ParseStarts(*text, path);
}

}  // namespace slotwise
