#include "server/durability/starts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/durability/bounds.h"
#include "server/durability/checked_fields.h"
#include "server/durability/hex.h"
#include "server/durability/manifest.h"
#include "slotwise/v1/manifest.pb.h"

namespace slotwise {
namespace {

constexpr std::uint64_t kFormatVersion = 2;  // 1 has numbers where 2 has strings of digits, and is read alike

void ListTable(CheckedFields& fields, FoundTable& table) {
  fields.HexNumber("lineage", table.generation);
  fields.Number("steps", table.steps, 0, kMaxSteps);
}

void ListGroup(CheckedFields& fields, ServerStarts& some) {
  fields.HexNumbers("incarnations", some.instances);
  if (some.instances.empty() || some.instances.size() > kMostStarts)
    fields.Complain("incarnations", "does not have 1 to " + std::to_string(kMostStarts) + " elements");
  fields.Objects("tables", some.tables, ListTable, kMaxTablesInCheckpoint);
}

void ListStarts(CheckedFields& fields, std::vector<ServerStarts>& starts) {
  std::uint64_t checksum = 0;  // of the text, which is checked already
  if (fields.reads()) fields.HexNumber("checksum", checksum);
  fields.Version(kFormatVersion, 1);
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
  v1::Starts message;
  CheckedFields::Write(message, std::vector(starts.all().begin(), starts.all().end()), ListStarts);
  std::uint64_t checksum = 0;
  return SerializeChecked(message, checksum);
}

Result<Starts> ParseStarts(std::string_view text, const std::string& path) {
  if (const auto version = VersionOfChecked(text, path); !version.ok()) return version.status();
  v1::Starts message;
  if (Status status = ParseMessage(text, path, message); !status.ok()) return status;
  const auto all = CheckMessage<std::vector<ServerStarts>>(message, path, ListStarts);
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
