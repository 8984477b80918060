#include "tests/sim/plan.h"

#include <chrono>
#include <optional>
#include <utility>

#include "tests/sim/asks.h"

namespace slotwise::sim {
namespace {

OptimizerOptions DrawOptimizer(Random& random) {
  OptimizerOptions options;
  options.kind = static_cast<OptimizerKind>(random.Below(8));
  options.learning_rate = 0.05F;
  options.epsilon = 1e-6F;
  if (random.OneIn(4)) options.weight_decay = 0.01F;
  if (random.OneIn(4))
    options.schedule = {
        .warmup_steps = 3, .decay_start = 4, .decay_steps = 10, .decay_power = 1, .end_learning_rate = 0.01F};
  return options;
}

TableOptions DrawTable(Random& random, std::string_view name) {
  TableOptions options;
  options.name = TableName(name);
  options.combiner = static_cast<Combiner>(random.Below(4));
  options.dim = 2 + 2 * static_cast<std::uint32_t>(random.Below(4));
  options.slots = options.combiner == Combiner::kNone ? 1 : 1 + static_cast<std::uint32_t>(random.Below(3));
  options.optimizer = DrawOptimizer(random);
  options.initializer = {-1.0F, 1.0F, random.Bits()};
  ChooseRowType(options);
  options.max_rows = random.OneIn(2) ? 1000 : 8 + random.Below(30);
  if (random.OneIn(3)) options.eviction = DrawEviction(random);
  if (random.OneIn(3)) options.admission = DrawAdmission(random);
  if (random.OneIn(3)) options.ttl_steps = 1 + random.Below(random.OneIn(2) ? 5 : 60);
  return options;
}

}  // namespace

std::optional<SlowGrowth> SlowGrowthOf(std::uint64_t seed) {
  if (seed % 2 != 0) return std::nullopt;
  return std::optional<SlowGrowth>(std::in_place, 4);
}

Plan MakePlan(std::uint64_t seed) {
  // The first numbers of seeds that follow each other are not alike.
  Random random(seed * 0x9E3779B97F4A7C15 + 1);
  Plan plan;
  plan.seed = seed;
  plan.ranks = 1 + static_cast<int>(random.Below(5));
  plan.apart = !random.OneIn(3);
  plan.exchange = plan.apart && !random.OneIn(4) ? ExchangeKind::kInStreamOrder : ExchangeKind::kBlocking;

  plan.engine.max_round_bytes = random.OneOf(std::vector<std::uint64_t>{1000, 2500, 6000, 100'000});
  plan.engine.max_queue_bytes = random.OneOf(std::vector<std::uint64_t>{300, 1000, 5000, 1'000'000});
  plan.engine.least_quantum_bytes = random.OneOf(std::vector<std::uint64_t>{1, 5000, 1'000'000});
  plan.engine.request_bytes = 0;  // the referee reckons with arrays and answers alone
  plan.engine.step_timeout =
      std::chrono::milliseconds(random.OneOf(std::vector<std::int64_t>{2, 20, 100, 1000}));
  plan.engine.ledger.max_sessions = random.OneOf(std::vector<std::size_t>{1, 2, 4, 65536});
  if (random.OneIn(4)) plan.engine.distribution.partials = static_cast<DataType>(1 + random.Below(2));
  if (random.OneIn(2))
    plan.engine.distribution.way =
        random.OneIn(2) ? OutputDistribution::kAllBags : OutputDistribution::kOwnedBags;
  if (!plan.engine.distribution.way) plan.engine.distribution.costs = {1, 1, 1, 0.5};

  const std::vector<std::string_view> names{"ads", "users", "pages"};
  const std::size_t tables = 1 + random.Below(names.size());
  for (std::size_t t = 0; t < tables; ++t) plan.tables.push_back(DrawTable(random, names[t]));
  if (random.OneIn(3)) plan.tables.push_back(DrawTable(random, names[0]));  // another of the same name

  plan.distinct_keys = 10 + random.Below(60);
  plan.asks = 40 + random.Below(120);
  plan.eval_percent = random.OneIn(3) ? 90 : 33;
  plan.weighted_percent = random.OneIn(3) ? 80 : 20;
  plan.other_percent = random.OneIn(3) ? 3 : 20;
  plan.client_pause = random.OneOf(std::vector<std::uint64_t>{2, 4, 10, 20});
  plan.device_pause = random.OneOf(std::vector<std::uint64_t>{1, 2, 8, 1000});
  plan.device_steps = random.OneOf(std::vector<std::uint64_t>{0, 0, 2, 8, 64});
  if (random.OneIn(2)) plan.slow_stream = random.Below(random.OneIn(2) ? 1 : 5);
  plan.freeze_pause = random.OneIn(3) ? 150 : 0;
  if (random.OneIn(5)) {
    plan.kill_at = 30 + random.Below(1200);
  } else if (random.OneIn(4)) {
    plan.stop_at = 30 + random.Below(1200);
  }
  plan.short_pause = random.OneIn(3) ? 12 : 0;
  plan.longest_jump = random.OneOf(std::vector<Time>{100, 1000, 30'000, 200'000});
  plan.slowest_wake = random.OneOf(std::vector<Time>{1, 2000, 100'000});
  // A server's limit leaves a table as small as these without one. Shares of less than 100 percent see to it
  // that ranks come to theirs before the table is full.
  if (random.OneIn(2)) {
    plan.engine.rank_limit = {.percent = 50 + static_cast<std::uint32_t>(random.Below(100)),
                              .slack = random.Below(3)};
  }
  // A shared buffer's memory is the host's, or that of a device without memory of its own.
  if (!plan.apart && !random.OneIn(5)) {
    plan.shared_buffer_calls = random.OneOf(std::vector<std::uint32_t>{1, 2, 4, 256});
    plan.shared_buffer_leave_pause = random.OneOf(std::vector<std::uint64_t>{100, 400, 3000});
  }
  return plan;
}

std::string Describe(const Plan& plan) {
  std::string text =
      "seed " + std::to_string(plan.seed) + ": " + std::to_string(plan.ranks) + " ranks on " +
      (plan.apart ? "devices apart from the host" : "CPUs") + ", " +
      (plan.exchange == ExchangeKind::kInStreamOrder ? "exchanges in stream order" : "exchanges that block") +
      ", " + std::to_string(plan.tables.size()) + " tables, rounds of " +
      std::to_string(plan.engine.max_round_bytes) + " bytes, request queues of " +
      std::to_string(plan.engine.max_queue_bytes) + ", step timeout " +
      std::to_string(plan.engine.step_timeout.count()) + " ms, " + std::to_string(plan.asks) + " requests";
  if (plan.shared_buffer_calls > 0)
    text +=
        ", clients with shared buffers, of " + std::to_string(plan.shared_buffer_calls) + " calls at a time";
  if (plan.kill_at > 0) text += ", a rank dies";
  if (plan.stop_at > 0) text += ", a rank stops early";
  return text;
}

}  // namespace slotwise::sim
