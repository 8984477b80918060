#include "tests/sim/durable_simulation.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <optional>
#include <string>

#include "tests/sim/damage.h"

namespace slotwise::sim {
namespace {

// Damages something between two lives, if the plan says so.
std::optional<Damage> DamageSomething(Random& random, SimFiles& files, const DurableHistory& history) {
  return random.OneIn(3) ? DamageCheckpoint(random, files)
                         : DamageJournal(random, files, history.recovered_round());
}

}  // namespace

DurableResult RunDurableSeed(std::uint64_t seed, bool print) {
  // Servers log why checkpoints fail, and here disks fail all the time.
  if (!print) spdlog::set_level(spdlog::level::off);
  const DurablePlan plan = MakeDurablePlan(seed);
  DurableResult result;
  result.plan = Describe(plan);
  if (print) std::printf("%s\n", result.plan.c_str());
  const std::optional<SlowGrowth> slow = SlowGrowthOf(seed);
  SimFiles files;
  DurableHistory history;
  DurableClients clients(plan, history);
  Random random(seed * 41 + 13);
  std::optional<Damage> damage;  // of which no recovery has found a way around
  for (std::size_t l = 0; l < plan.lives.size(); ++l) {
    if (print) std::printf("--- life %zu\n", l + 1);
    if (plan.damage && !damage && !random.OneIn(4)) {
      damage = DamageSomething(random, files, history);
      if (damage) ++(damage->of_journal ? result.outcome.journal_damages : result.outcome.damages);
      if (damage && print) {
        const std::string behind = damage->may_lose_behind ? std::to_string(*damage->may_lose_behind) : "";
        std::printf("damages %s%s%s\n", damage->path.c_str(),
                    behind.empty() ? "" : ", which may lose what came after round ", behind.c_str());
      }
      if (damage && damage->may_lose_behind) history.MayLoseBehind(*damage->may_lose_behind);
    }
    const LifeOutcome before = result.outcome;
    result.failure = Live(plan.lives[l], files, damage.has_value(), history, clients, print, result.outcome);
    if (!result.failure.empty()) {
      result.failure = "life " + std::to_string(l + 1) + ": " + result.failure;
      break;
    }
    // A person brings the file back.
    if (damage && result.outcome.refused_damages > before.refused_damages) {
      Mend(files, *damage);
      history.MayLoseNothing();
    }
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
         number(outcome.damages) + ", journals " + number(outcome.journal_damages) +
         " (their torn ends lost " + number(outcome.torn) + " updates), ranks that found no way around " +
         number(outcome.refused_damages) + "\n  requests " + number(outcome.requests) +
         ", updates acknowledged " + number(outcome.acknowledged) + ", refused by the disk " +
         number(outcome.refused) + ", acknowledged and lost outside of sync " + number(outcome.lost) +
         ", over at most " + number(outcome.longest_loss / 1000) +
         " ms in interval mode\n  checkpoints saved on demand " + number(outcome.saved) +
         ", of them deltas " + number(outcome.deltas) + "\n  kills " + number(outcome.kills) +
         ", broken devices " + number(outcome.breaks) + ", power failures " + number(outcome.power_failures) +
         ", ended by the disk " + number(outcome.disk_failures) + ", clean ends " +
         number(outcome.clean_ends) + "\n  rows evicted " + number(outcome.evicted) + ", expired " +
         number(outcome.expired) + ", refused by tables that evict " + number(outcome.full) + "\n";
}

}  // namespace slotwise::sim
