#include "tests/sim/durable_simulation.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace slotwise::sim {
namespace {

constexpr std::string_view kCheckpoints = "data/checkpoints";

// Files of the folder and of those in it.
void AddFiles(SimFiles& files, const std::string& folder, std::vector<std::string>& paths) {
  const auto names = files.List(folder);
  if (!names.ok()) return paths.push_back(folder);
  for (const std::string& name : *names) AddFiles(files, folder + "/" + name, paths);
}

// A file that was changed, and what was in it.
struct Damage {
  std::string path;
  std::vector<std::byte> bytes;
};

// Changes, cuts or empties a file of some checkpoint. Nothing if there is none.
std::optional<Damage> DamageCheckpoint(Random& random, SimFiles& files) {
  auto ids = files.List(std::string(kCheckpoints));
  if (ids.ok()) std::erase_if(*ids, [](const std::string& id) { return id.starts_with('.'); });
  if (!ids.ok() || ids->empty()) return std::nullopt;
  std::vector<std::string> paths;
  // Mostly the newest.
  const std::string id = random.OneIn(3) ? random.OneOf(*ids) : ids->back();
  AddFiles(files, std::string(kCheckpoints) + "/" + id, paths);
  if (paths.empty()) return std::nullopt;
  Damage damage{.path = random.OneOf(paths), .bytes = {}};
  const auto file = files.Open(damage.path);
  if (!file.ok() || (*file)->size() == 0) return std::nullopt;
  damage.bytes = files.Contents(damage.path);
  std::vector<std::byte> bytes = damage.bytes;
  switch (random.Below(3)) {
    case 0:
      bytes[random.Below(bytes.size())] ^= std::byte{1} << random.Below(8);
      break;
    case 1:
      bytes.resize(random.Below(bytes.size()));
      break;
    default:
      bytes.clear();
  }
  files.SetContents(damage.path, std::move(bytes));
  return damage;
}

}  // namespace

DurableResult RunDurableSeed(std::uint64_t seed, bool print) {
  // Servers log why checkpoints fail, and here disks fail all the time.
  if (!print) spdlog::set_level(spdlog::level::off);
  const DurablePlan plan = MakeDurablePlan(seed);
  DurableResult result;
  result.plan = Describe(plan);
  if (print) std::printf("%s\n", result.plan.c_str());
  SimFiles files;
  DurableHistory history;
  DurableClients clients(plan, history);
  Random random(seed * 41 + 13);
  std::optional<Damage> damage;  // of which no recovery has found a way around
  for (std::size_t l = 0; l < plan.lives.size(); ++l) {
    if (print) std::printf("--- life %zu\n", l + 1);
    if (plan.damage && !damage && random.OneIn(2)) {
      damage = DamageCheckpoint(random, files);
      if (damage) ++result.outcome.damages;
      if (damage && print) std::printf("damages %s\n", damage->path.c_str());
    }
    const LifeOutcome before = result.outcome;
    result.failure = Live(plan.lives[l], files, damage.has_value(), history, clients, print, result.outcome);
    if (!result.failure.empty()) {
      result.failure = "life " + std::to_string(l + 1) + ": " + result.failure;
      break;
    }
    // A person brings the file back.
    if (damage && result.outcome.refused_damages > before.refused_damages)
      files.SetContents(damage->path, damage->bytes);
    if (result.outcome.refused_damages > before.refused_damages || result.outcome.begun > before.begun)
      damage.reset();
  }
  return result;
}

std::string Describe(const LifeOutcome& outcome) {
  const auto number = [](std::uint64_t n) { return std::to_string(n); };
  return "  lives " + number(outcome.lives) + ", events " + number(outcome.events) +
         ", recoveries compared " + number(outcome.recoveries) + " (from checkpoints " +
         number(outcome.from_checkpoints) + ", rounds replayed " + number(outcome.replayed) +
         "), failed with their disk " + number(outcome.failed_recoveries) + "; checkpoints damaged " +
         number(outcome.damages) + ", ranks that found no way around " + number(outcome.refused_damages) +
         "\n  requests " + number(outcome.requests) + ", updates acknowledged " +
         number(outcome.acknowledged) + ", refused by the disk " + number(outcome.refused) +
         ", acknowledged and lost outside of sync " + number(outcome.lost) + ", over at most " +
         number(outcome.longest_loss / 1000) + " ms in interval mode\n  checkpoints saved on demand " +
         number(outcome.saved) + ", of them deltas " + number(outcome.deltas) + "\n  kills " +
         number(outcome.kills) + ", broken devices " + number(outcome.breaks) + ", power failures " +
         number(outcome.power_failures) + ", ended by the disk " + number(outcome.disk_failures) +
         ", clean ends " + number(outcome.clean_ends) + "\n";
}

}  // namespace slotwise::sim
