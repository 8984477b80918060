#include "server/durability/starts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/durability/bounds.h"
#include "server/durability/hex.h"
#include "server/durability/json_fields.h"
#include "server/durability/manifest.h"

namespace slotwise {
namespace {

using nlohmann::json;

constexpr std::uint64_t kFormatVersion = 1;

void ListTable(JsonFields& fields, FoundTable& table) {
  fields.HexNumber("lineage", table.generation);
  fields.Number("steps", table.steps, 0, kMaxSteps);
}

void ListGroup(JsonFields& fields, ServerStarts& some) {
  json instances = json::array();
  for (const std::uint64_t instance : some.instances) instances.push_back(Hex(instance));
  fields.Array("incarnations", instances);
  if (instances.empty() || instances.size() > kMostStarts)
    fields.Complain("incarnations", "does not have 1 to " + std::to_string(kMostStarts) + " elements");
  some.instances.clear();
  for (const json& each : instances) {
    if (!each.is_string() || !ParseHex(each.get<std::string>(), some.instances.emplace_back()))
      fields.Complain("incarnations", "has what is not 16 hexadecimal digits");
  }
  fields.Objects("tables", some.tables, ListTable, kMaxTablesInCheckpoint);
}

void ListStarts(JsonFields& fields, std::vector<ServerStarts>& starts) {
  fields.Version(kFormatVersion, kFormatVersion);
  fields.Objects("starts", starts, ListGroup, kMostStarts);
}

void KeepNewest(auto& all) {
  if (all.size() > kMostStarts) all.erase(all.begin());
}

}  // namespace

void Starts::Add(std::uint64_t instance, std::vector<FoundTable> tables) {
  std::ranges::sort(tables, {}, &FoundTable::generation);
  if (starts_.empty() || starts_.back().tables != tables)
    starts_.push_back({.instances = {}, .tables = std::move(tables)});
  starts_.back().instances.push_back(instance);
  KeepNewest(starts_.back().instances);
  KeepNewest(starts_);
}

std::uint64_t Starts::LostFrom(std::uint64_t generation, std::uint64_t instance, std::uint64_t step) const {
  if (starts_.empty()) return 0;
  auto later = std::prev(starts_.end());
  for (auto some = starts_.begin(); some != starts_.end(); ++some) {
    if (std::ranges::find(some->instances, instance) == some->instances.end()) continue;
    later = some->instances.back() == instance ? std::next(some) : some;
  }
  std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
  for (; later != starts_.end(); ++later) {
    const auto found = std::ranges::lower_bound(later->tables, generation, {}, &FoundTable::generation);
    if (found != later->tables.end() && found->generation == generation) kept = std::min(kept, found->steps);
  }
  return step > kept ? kept + 1 : 0;
}

std::string SerializeStarts(const Starts& starts) {
  const std::vector<ServerStarts> all(starts.all().begin(), starts.all().end());
  return SerializeChecked(JsonFields::Write(all, ListStarts));
}

Result<Starts> ParseStarts(std::string_view text, const std::string& path) {
  const auto all = ParseChecked<std::vector<ServerStarts>>(text, path, ListStarts);
  if (!all.ok()) return all.status();
  Starts starts;
  for (const ServerStarts& some : *all) {
    for (const std::uint64_t instance : some.instances) starts.Add(instance, some.tables);
  }
  return starts;
}

Result<Starts> ReadStarts(FileSystem& files, const std::string& path) {
  const auto text = ReadCheckedText(files, path);
  if (!text.ok()) return text.status();
  return ParseStarts(*text, path);
}

}  // namespace slotwise
