#include "tests/sim/durable_plan.h"

#include <array>
#include <string_view>

#include "tests/sim/asks.h"

namespace slotwise::sim {
namespace {

using Sizes = std::vector<std::uint64_t>;

TableOptions DrawTable(Random& random, std::string_view name, bool whole_numbers) {
  TableOptions options;
  options.name = TableName(name);
  options.combiner = whole_numbers ? Combiner::kSum : static_cast<Combiner>(random.Below(4));
  options.dim = 1 + static_cast<std::uint32_t>(random.Below(6));
  options.slots = options.combiner == Combiner::kNone ? 1 : 1 + static_cast<std::uint32_t>(random.Below(2));
  options.max_rows = 1000;
  if (random.OneIn(3)) {
    options.max_rows = 20 + random.Below(15);
    options.eviction = DrawEviction(random);
  }
  if (random.OneIn(3)) options.admission = DrawAdmission(random);
  if (whole_numbers) {
    options.optimizer.learning_rate = 1.0F;
    options.initializer = {.low = 0.0F, .high = 0.0F};
    return options;
  }
  options.optimizer.kind = static_cast<OptimizerKind>(random.Below(8));
  options.optimizer.learning_rate = 0.05F;
  options.optimizer.epsilon = 1e-6F;
  if (random.OneIn(4)) {
    options.optimizer.schedule = {
        .warmup_steps = 3, .decay_start = 4, .decay_steps = 10, .decay_power = 1, .end_learning_rate = 0.01F};
  }
  options.initializer = {-1.0F, 1.0F, random.Bits()};
  ChooseRowType(options);
  return options;
}

void DrawRanks(Random& random, Plan& plan) {
  plan.ranks = 1 + static_cast<int>(random.Below(4));
  plan.apart = random.OneIn(2);
  plan.exchange = plan.apart && !random.OneIn(4) ? ExchangeKind::kInStreamOrder : ExchangeKind::kBlocking;
  plan.engine.max_round_bytes = 100'000;
  plan.engine.max_queue_bytes = random.OneIn(4) ? 5000 : 1'000'000;
  plan.engine.instance = random.Bits() | 1;
  plan.engine.step_timeout = std::chrono::milliseconds(random.OneOf(Sizes{20, 100, 1000}));
  plan.engine.distribution.costs = {1, 1, 1, 0.5};
  plan.asks = 20 + random.Below(80);
  plan.client_pause = random.OneOf(Sizes{4, 10, 40});
  plan.device_pause = random.OneOf(Sizes{1, 2, 8});
  plan.device_steps = random.OneOf(Sizes{0, 2, 8});
  plan.longest_jump = random.OneOf(std::vector<Time>{1000, 30'000, 400'000});
  plan.slowest_wake = random.OneOf(std::vector<Time>{1, 2000, 50'000});
}

void DrawDurability(Random& random, DurabilityMode mode, DurabilityOptions& options) {
  options.mode = mode;
  options.folder = "data";
  options.interval = std::chrono::seconds(1 + random.Below(3));
  options.checkpoint_every = std::chrono::seconds(random.Below(3));
  options.keep = 1 + random.Below(2);
  options.max_deltas = 1 + random.Below(4);
  options.max_erased = random.OneOf(Sizes{0, 3, 1000});
  options.max_copy_on_write_bytes = random.OneOf(Sizes{0, 200, 100'000});
  options.checkpoint_buffer_bytes = random.OneOf(Sizes{32, 200, 4096});
  options.journal_reserve_bytes = random.OneOf(Sizes{512, 4096, 16'384});
  options.journal_segment_bytes = random.OneOf(Sizes{1000, 10'000, 40'000});
}

DurabilityMode DrawMode(Random& random) {
  constexpr std::array kModes{DurabilityMode::kSync, DurabilityMode::kSync, DurabilityMode::kInterval,
                              DurabilityMode::kNone};
  return kModes[random.Below(kModes.size())];
}

LifePlan DrawLife(Random& random, std::uint64_t seed, DurabilityMode mode, bool last) {
  LifePlan life;
  life.ranks.seed = seed;
  DrawRanks(random, life.ranks);
  DrawDurability(random, mode, life.durability);
  if (last) return life;
  if (!random.OneIn(8)) {
    life.ranks.kill_at = 1 + random.Below(random.OneOf(Sizes{100, 500, 1000, 3000}));
    life.kills_all = random.OneIn(2);
    life.breaks = !life.kills_all && random.OneIn(4);
  } else if (random.OneIn(2)) {
    life.ranks.stop_at = 100 + random.Below(2000);
  }
  life.power_fails = random.OneIn(2);
  if (random.OneIn(2)) {
    life.fail_at = 1 + random.Below(random.OneOf(Sizes{40, 400}));
    life.fault = random.OneIn(2) ? SimFiles::Fault::kBroken : SimFiles::Fault::kNoSpace;
  }
  if (random.OneIn(6)) {
    life.full_at = 1 + random.Below(1000);
    life.room_at = life.full_at + random.Below(3000);
    life.room = random.Below(10'000);
  }
  return life;
}

// A sweep has no caller who hears whether the disk refused it, so the disk refuses nothing.
void DrawTimesToLive(Random& random, DurablePlan& plan) {
  for (TableOptions& table : plan.tables) table.ttl_steps = 1 + random.Below(random.OneIn(2) ? 5 : 60);
  for (LifePlan& life : plan.lives) life.fail_at = life.full_at = 0;
}

std::string_view NameOf(DurabilityMode mode) {
  if (mode == DurabilityMode::kSync) return "sync";
  return mode == DurabilityMode::kInterval ? "interval" : "none";
}

}  // namespace

DurablePlan MakeDurablePlan(std::uint64_t seed) {
  Random random(seed * 0x9E3779B97F4A7C15 + 77);
  DurablePlan plan;
  plan.seed = seed;
  plan.whole_numbers = random.OneIn(2);
  constexpr std::array<std::string_view, 3> kNames{"ads", "users", "pages"};
  const std::size_t tables = 1 + random.Below(kNames.size());
  for (std::size_t t = 0; t < tables; ++t)
    plan.tables.push_back(DrawTable(random, kNames[t], plan.whole_numbers));
  // Servers mostly stay with a mode.
  const DurabilityMode mode = DrawMode(random);
  const bool mixed = random.OneIn(4);
  plan.damage = mode == DurabilityMode::kSync && !mixed && random.OneIn(2);
  const std::size_t lives = 3 + random.Below(4);
  for (std::size_t l = 0; l < lives; ++l)
    plan.lives.push_back(DrawLife(random, seed * 100 + l, mixed ? DrawMode(random) : mode, l + 1 == lives));
  if (!mixed && mode != DurabilityMode::kInterval && random.OneIn(2)) DrawTimesToLive(random, plan);
  return plan;
}

std::string Describe(const DurablePlan& plan) {
  std::string text = "seed " + std::to_string(plan.seed) + ": " + std::to_string(plan.tables.size()) +
                     " tables" + (plan.whole_numbers ? ", whole numbers" : "") +
                     (plan.damage ? ", files are damaged" : "");
  for (const LifePlan& life : plan.lives) {
    text += "\n  a life of " + std::to_string(life.ranks.ranks) + " ranks, " +
            std::string(NameOf(life.durability.mode)) + ", " + std::to_string(life.ranks.asks) + " requests";
    if (life.ranks.kill_at > 0) {
      text += (life.kills_all ? ", all killed at event "
               : life.breaks  ? ", one breaks at event "
                              : ", one killed at event ") +
              std::to_string(life.ranks.kill_at);
    }
    if (life.ranks.stop_at > 0) text += ", stopped at event " + std::to_string(life.ranks.stop_at);
    if (life.fail_at > 0) text += ", file operation " + std::to_string(life.fail_at) + " fails";
    if (life.full_at > 0) text += ", the disk is full from event " + std::to_string(life.full_at);
    if (life.power_fails) text += ", then the power fails";
  }
  return text;
}

}  // namespace slotwise::sim
