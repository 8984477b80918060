// slotwise-bench living times a table whose rows come and go: find-or-insert in a full table that evicts, one
// eviction, what scores cost where nothing is evicted, and how long a table's growth holds up others.
//
// The engine's TableWork drives the table, as for a server of one rank.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/on_device.h"
#include "bench/sharded_table.h"
#include "bench/subcommand.h"
#include "bench/timing.h"
#include "bench/workload.h"
#include "kernels/body/hash.h"
#include "server/engine/table_work.h"

namespace slotwise::bench {
namespace {

struct LivingOptions : CommonOptions {
  std::uint32_t rows = 1'000'000;
  std::uint32_t dim = 64;
  std::uint32_t batch = 65'536;
  double alpha = 1.05;
  double load = 0.5;
  double to = 0.95;
  std::string score = "step";
  std::uint32_t grow_to = 0;
};

ScoreKind ScoreNamed(const std::string& name) {
  const auto kinds = EveryKind<ScoreKind>();
  return *std::ranges::find_if(kinds, [&](ScoreKind kind) { return ToString(kind) == name; });
}

TableOptions OptionsOf(const LivingOptions& o, bool evicts) {
  TableOptions options;
  options.name = TableName("bench");
  options.dim = o.dim;
  options.optimizer.learning_rate = 1;
  options.initializer = {.kind = InitializerKind::kConstant, .mean = 1};
  options.initial_rows = options.max_rows = o.rows;
  options.max_load = static_cast<float>(o.load);
  if (evicts) options.eviction = {.score = ScoreNamed(o.score), .to = static_cast<float>(o.to)};
  return options;
}

// A full table. Of its first rows, the upper half goes first: their keys have the lowest scores. Then go
// those of the lower half, and then new keys in the order in which they came.
class FullTable {
 public:
  FullTable(const LivingOptions& o, Device& device, Collective& collective, Exchange& exchange)
      : o_(o), device_(device), work_(device, collective, exchange, {}) {
    table_.info.options = OptionsOf(o, true);
    table_.shard = Must(device.MakeShard(OptionsOf(o, true), {.secret = kBenchSecret}), "no shard");
    Insert(KeysOfRange(lower(), o.rows - lower()));
    Insert(KeysOfRange(0, lower()));
  }

  std::uint32_t lower() const { return o_.rows / 2; }
  std::uint64_t rows() const { return table_.shard->Usage().rows; }
  std::uint64_t cells() const { return table_.shard->Usage().cells; }
  std::uint64_t evicted() const { return table_.evicted_rows; }
  // Returns keys that the table has never had.
  std::vector<Key> NewKeys(std::uint32_t count) {
    const std::uint64_t first = next_;
    next_ += count;
    return KeysOfRange(first, count);
  }

  // Batches of one key a bag, behind each other in device memory.
  struct Batches {
    std::unique_ptr<OnDevice<Key>> keys;
    std::unique_ptr<OnDevice<std::uint32_t>> offsets;
    std::uint32_t each = 0;
  };
  Batches Upload(const std::vector<Key>& keys, std::uint32_t each) const {
    return {std::make_unique<OnDevice<Key>>(device_, keys),
            std::make_unique<OnDevice<std::uint32_t>>(device_, EvenOffsets(each, 1)), each};
  }
  // Finds or inserts the keys of all batches, each in a step of its own.
  void Run(const Batches& batches) {
    for (std::size_t at = 0; at < batches.keys->size(); at += batches.each) {
      const auto each =
          static_cast<std::uint32_t>(std::min<std::size_t>(batches.each, batches.keys->size() - at));
      const TableWork::Share share{
          &table_, {batches.keys->span().subspan(at, each), batches.offsets->span().first(each + 1)}};
      Must(work_.PrepareAndInsert({&share, 1}), "no room for rows");
      ++table_.steps;
    }
    device_.Wait();
  }
  void Insert(const std::vector<Key>& keys) {
    Run(Upload(keys, std::min<std::uint32_t>(o_.batch, keys.size())));
  }

  // Returns the last row that the last batch evicted, if it did.
  std::optional<EvictionPlace> last() const {
    return work_.evictions().empty() ? std::nullopt : std::optional(work_.evictions().front().last);
  }
  // Returns for each key whether it has a row.
  std::vector<bool> Have(const std::vector<Key>& keys) {
    const Batches asked = Upload(keys, static_cast<std::uint32_t>(keys.size()));
    const OnDevice<float> values(device_, keys.size() * o_.dim);
    Must(table_.shard->PrepareFind({asked.keys->span(), asked.offsets->span()}), "PrepareFind")
        .Pool(values.data());
    const std::vector<float> host = values.Host();
    std::vector<bool> have(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) have[i] = host[i * o_.dim] != 0;
    return have;
  }

 private:
  const LivingOptions& o_;
  Device& device_;
  Table table_;
  TableWork work_;
  std::uint64_t next_ = std::uint64_t{1} << 40;
};

// Brings the full table one batch of new keys, and checks which rows went.
void CheckEviction(FullTable& table, const LivingOptions& o) {
  const TableOptions options = OptionsOf(o, true);
  const std::uint64_t kept = RowsOfShare(options.max_rows, options.eviction.to);
  const std::vector<Key> fresh = table.NewKeys(o.batch);
  table.Insert(fresh);
  Must(table.rows() == kept && table.evicted() == o.rows + fresh.size() - kept,
       "wrong result: not as many rows went as should");
  Must(table.last().has_value(), "wrong result: nothing was evicted");
  const EvictionPlace last = *table.last();
  Must(std::ranges::all_of(table.Have(fresh), std::identity()), "wrong result: a new key has no row");
  const auto sample = std::min<std::uint32_t>(o.batch, table.lower());
  Must(std::ranges::all_of(table.Have(KeysOfRange(0, sample)), std::identity()),
       "wrong result: a row went, and another was older");
  // The batches of the upper half came in steps 1, 2, and so on.
  for (std::uint32_t step = 1; step <= 4; ++step) {
    const std::vector<Key> of_step = KeysOfRange(table.lower() + std::uint64_t{step - 1} * o.batch, o.batch);
    const std::vector<bool> have = table.Have(of_step);
    const EvictionOrder order = EvictionOrder::Of(options, step);
    for (std::size_t i = 0; i < of_step.size(); ++i) {
      const EvictionPlace place{order.NumberOf(order.OfNew()), body::TieOf(Value(of_step[i]))};
      Must(have[i] == (last < place), "wrong result: other rows went than those with the lowest places");
    }
  }
}

class LivingBench {
 public:
  LivingBench(const LivingOptions& o, Collective& collective)
      : o_(o),
        collective_(collective),
        place_(MakePlace(o, collective)),
        exchange_(
            Must(MakeExchange(*place_.device, place_.device->WorkStream(), collective), "no exchange")) {
    Must(collective.size() == 1, "living measures one rank");
    Must(o.batch >= 100 && o.batch <= o.rows / 8, "--batch must be 100 to an eighth of --rows");
  }

  Report Run() {
    Report report;
    report.benchmark = "living";
    report.title = "living: " + std::to_string(o_.rows) + " rows x " + std::to_string(o_.dim) +
                   ", batches of " + std::to_string(o_.batch) + ", score " + o_.score;
    report.options = ToJson(o_);
    report.options.update({{"rows", o_.rows},
                           {"dim", o_.dim},
                           {"batch", o_.batch},
                           {"alpha", o_.alpha},
                           {"load", o_.load},
                           {"to", o_.to},
                           {"score", o_.score},
                           {"grow_to", o_.grow_to}});
    report.device = place_.device->Name();
    report.threads = place_.threads;
    report.copy_bytes_per_second = place_.memory->CopyBytesPerSecond();
    report.random_lines_per_second = place_.memory->LinesPerSecond();
    Churn(report);
    WithoutEviction(report);
    Admission(report);
    if (o_.grow_to > 0) Growth(report);
    report.notes.emplace_back(
        "Churn: find-or-insert in a table that is full all the time, every eviction and rehash included. "
        "An eviction: the batch of 100 new keys that a full table has no room for. Admission: each push, "
        "and each step of a lookup and a push, brings new keys, which are counted and get no rows; the "
        "peer's keys all have rows.");
    if (o_.grow_to > 0) {
      report.notes.emplace_back(
          "Growth: batches of new keys, from a 64th of the rows on. Another table's round waits for one of "
          "them "
          "at most.");
    }
    return report;
  }

 private:
  // Rows that go in one eviction.
  std::uint32_t Gone() const {
    const TableOptions options = OptionsOf(o_, true);
    return o_.rows - static_cast<std::uint32_t>(RowsOfShare(options.max_rows, options.eviction.to));
  }
  // Returns the keys of as many batches as bring one eviction: `fresh` new keys in each, and others by the
  // power law over the lower half.
  std::vector<Key> Cycle(FullTable& table, std::uint32_t fresh) {
    const std::uint32_t batches = (Gone() + fresh - 1) / fresh;
    const std::vector<Key> drawn =
        KeysOf(DrawRows(std::size_t{o_.batch} * 8, table.lower(), o_.alpha, o_.seed));
    std::vector<Key> keys;
    keys.reserve(std::size_t{batches} * o_.batch);
    for (std::uint32_t b = 0; b < batches; ++b) {
      const std::vector<Key> more = table.NewKeys(fresh);
      keys.insert(keys.end(), more.begin(), more.end());
      const auto others = drawn.begin() + static_cast<std::ptrdiff_t>(std::size_t{o_.batch} * (b % 8));
      keys.insert(keys.end(), others, others + (o_.batch - fresh));
    }
    return keys;
  }
  // Times cycles, a call of which is one batch.
  Contender TimeCycles(FullTable& table, std::uint32_t fresh) {
    return {"slotwise",
            [this, &table, fresh] {
              const std::vector<Key> keys = Cycle(table, fresh);
              const FullTable::Batches batches = table.Upload(keys, o_.batch);
              const std::uint64_t all = table.rows() + table.evicted();
              const double seconds = SecondsOf([&] { table.Run(batches); });
              const std::uint64_t count = keys.size() / o_.batch;
              Must(table.rows() + table.evicted() - all == count * fresh,
                   "wrong result: other keys than the new ones got rows");
              return seconds / static_cast<double>(count);
            },
            {}};
  }

  void Churn(Report& report) {
    FullTable table(o_, *place_.device, collective_, *exchange_);
    Must(table.rows() == o_.rows, "wrong result: not as many rows as keys");
    CheckEviction(table, o_);
    const double copy = report.copy_bytes_per_second;
    const double n = o_.batch;
    const double scored = o_.score.empty() ? 0 : 16;
    // A key and its line of cells are read, and a row's index is written. Of a new key the line is written
    // too, and its row and score. Of a row that goes the score is read, and its line of cells read and
    // written. An eviction reads all scores once.
    const auto floor = [&](double fresh) {
      const double scans = fresh / Gone();
      const double streamed = n * (8 + 4) + fresh * (64 + 4.0 * o_.dim + scored + 64) + scans * 16 * o_.rows;
      const double lines = n + fresh;
      return std::pair{streamed + lines * 64, streamed / copy + lines / report.random_lines_per_second};
    };
    const auto add = [&](const std::string& name, std::uint32_t fresh, int repeats) {
      std::vector<Contender> contenders{TimeCycles(table, fresh)};
      TakeTurns(repeats, contenders);
      const auto [bytes, seconds] = floor(fresh);
      report.lines.push_back({name, n, contenders[0].seconds, bytes, seconds, {}});
    };
    // The lower half stays until the upper one has gone.
    const int most = std::max(1, static_cast<int>(table.lower() / Gone()) - 3);
    add("churn, 1 % new", o_.batch / 100, std::min(o_.repeats, most));
    std::vector<Contender> evictions{{"slotwise", [&] { return Eviction(table); }, {}}};
    TakeTurns(o_.repeats, evictions);
    const double scan = 16.0 * o_.rows + Gone() * (2 * 64.0 + 16);
    report.lines.push_back({"an eviction",
                            static_cast<double>(Gone()),
                            evictions[0].seconds,
                            scan,
                            16.0 * o_.rows / copy + 2 * Gone() / report.random_lines_per_second,
                            {}});
    add("churn, all new", o_.batch, o_.repeats);
  }
  // Fills the table, and times the batch for which rows go.
  double Eviction(FullTable& table) {
    constexpr std::uint32_t kNew = 100;
    table.Insert(table.NewKeys(o_.rows - static_cast<std::uint32_t>(table.rows())));
    const FullTable::Batches batch = table.Upload(table.NewKeys(kNew), kNew);
    const std::uint64_t before = table.evicted();
    const double seconds = SecondsOf([&] { table.Run(batch); });
    Must(table.evicted() - before == Gone() + kNew, "wrong result: a full table evicted other rows");
    return seconds;
  }

  // A lookup and a step of present keys, in tables with and without scores.
  void WithoutEviction(Report& report) {
    constexpr std::uint32_t kHot = 4;
    const std::uint32_t bags = o_.batch / kHot;
    const auto rows = static_cast<std::uint32_t>(o_.rows / 2);
    const std::vector<Key> keys = KeysOf(DrawRows(std::size_t{bags} * kHot, rows, o_.alpha, o_.seed));
    const std::vector<float> gradients(std::size_t{bags} * o_.dim, 0.5F);
    std::vector<std::unique_ptr<ShardedTable>> tables;
    for (const bool evicts : {true, false}) {
      TableOptions options = OptionsOf(o_, evicts);
      options.initial_rows = rows;
      tables.push_back(std::make_unique<ShardedTable>(*place_.device, collective_, *exchange_, options,
                                                      DistributionOptions{}));
      tables.back()->Insert(KeysOfRange(0, rows));
      tables.back()->SetBatch(keys, bags, kHot, gradients);
    }
    tables[0]->TrainStep({.step = 1, .learning_rate = 1});
    tables[1]->TrainStep({.step = 1, .learning_rate = 1});
    Must(tables[0]->Pooled() == tables[1]->Pooled(), "wrong result: scores change what is learned");
    std::uint64_t step = 1;
    for (const bool steps : {false, true}) {
      std::vector<Contender> contenders;
      for (const auto& table : tables) {
        contenders.push_back({table == tables[0] ? "with scores" : "without scores",
                              [this, steps, &step, table = table.get()] {
                                const int calls = CallsInARow(*place_.device) * 4;
                                return SecondsOf([&] {
                                         for (int c = 0; c < calls; ++c)
                                           steps ? table->TrainStep({.step = ++step, .learning_rate = 1e-9F})
                                                 : table->Lookup();
                                         table->Wait();
                                       }) /
                                       calls;
                              },
                              {}});
      }
      TakeTurns(o_.repeats, contenders);
      const double row = 4.0 * o_.dim, n = std::size_t{bags} * kHot;
      const double streamed = 8 * n + bags * row;
      const double gathered = n * row * (steps ? 3 : 1);
      const double copy = report.copy_bytes_per_second;
      report.lines.push_back({steps ? "step, SGD" : "lookup",
                              n,
                              contenders[0].seconds,
                              streamed + gathered + 64 * n,
                              n / report.random_lines_per_second + (streamed + gathered) / copy,
                              {{"without scores", place_.threads, contenders[1].seconds}}});
      report.figures.push_back({std::string(steps ? "step" : "lookup") + ", of the time without scores",
                                MedianRatio(contenders[0].seconds, contenders[1].seconds), 0, 0});
    }
  }

  // Pushes, and steps of a lookup and a push, of which a tenth of the keys are unknown, to tables that admit
  // by frequency; and of known keys alone, to a table without an admission.
  void Admission(Report& report) {
    constexpr std::uint32_t kHot = 4;
    const std::uint32_t bags = o_.batch / kHot;
    const std::uint32_t n = bags * kHot;
    const auto rows = static_cast<std::uint32_t>(o_.rows / 2);
    const std::vector<Key> known = KeysOf(DrawRows(n, rows, o_.alpha, o_.seed));
    const std::vector<float> gradients(std::size_t{bags} * o_.dim, 0.5F);
    TableOptions options = OptionsOf(o_, false);
    options.initial_rows = rows;
    ShardedTable without(*place_.device, collective_, *exchange_, options, DistributionOptions{});
    options.admission = {.kind = AdmissionKind::kFrequency, .threshold = 3, .max_keys = o_.rows};
    ShardedTable exact(*place_.device, collective_, *exchange_, options, DistributionOptions{});
    // The Bloom counter has as many blocks as the exact one may have rows.
    const std::uint64_t mib = std::max<std::uint64_t>(1, o_.rows * BloomCounter::kBlockBytes >> 20);
    options.admission = {.kind = AdmissionKind::kFrequency,
                         .threshold = 255,
                         .counter = CounterKind::kBloom,
                         .counter_mib = std::min(mib, BloomCounter::kMaxMib)};
    ShardedTable bloom(*place_.device, collective_, *exchange_, options, DistributionOptions{});
    for (ShardedTable* const table : {&without, &exact, &bloom}) table->Insert(KeysOfRange(0, rows));
    exact.ReserveCandidates(std::uint64_t{n} / 5 * static_cast<std::uint64_t>(2 * o_.repeats + 20));

    std::uint64_t next = std::uint64_t{1} << 41, step = 0;
    const auto time = [&](ShardedTable& table, bool with_unknown, bool looks_up) {
      std::vector<Key> keys = known;
      for (std::size_t i = 0; with_unknown && i < keys.size(); i += 10) keys[i] = KeysOfRange(next++, 1)[0];
      table.SetBatch(keys, bags, kHot, gradients);
      const std::uint64_t before = table.Usage().rows, counted = table.candidates();
      const double seconds = SecondsOf([&] {
        if (looks_up) table.Lookup();
        table.Push({.step = ++step, .learning_rate = 1e-9F});
        table.Wait();
      });
      const std::uint64_t new_counts = table.candidates() - counted;
      Must(table.Usage().rows == before &&
               (&table == &bloom || new_counts == (with_unknown ? (n + 9) / 10 : 0)),
           "wrong result: other keys than the unknown ones were counted");
      return seconds;
    };
    for (const bool looks_up : {false, true}) {
      std::vector<Contender> contenders;
      for (ShardedTable* const table : {&exact, &bloom, &without}) {
        contenders.push_back(
            {"", [&, table, looks_up] { return time(*table, table != &without, looks_up); }, {}});
      }
      TakeTurns(o_.repeats, contenders);
      const std::string what = looks_up ? "step" : "push";
      const double row = 4.0 * o_.dim;
      const double streamed = (looks_up ? 2 : 1) * (8.0 * n + bags * row);
      const double gathered = 0.9 * n * row * (looks_up ? 4 : 3);
      report.lines.push_back(
          {what + ", SGD, a tenth unknown",
           static_cast<double>(n),
           contenders[0].seconds,
           streamed + gathered + 64.0 * n,
           n / report.random_lines_per_second + (streamed + gathered) / report.copy_bytes_per_second,
           {{"counted by a Bloom counter", place_.threads, contenders[1].seconds},
            {"without admission", place_.threads, contenders[2].seconds}}});
      report.figures.push_back({what + ", of the time without admission",
                                MedianRatio(contenders[0].seconds, contenders[2].seconds), 0, 0});
      report.figures.push_back({what + " by a Bloom counter, of the time without admission",
                                MedianRatio(contenders[1].seconds, contenders[2].seconds), 0, 0});
    }
  }

  // A table that grows to 64 times its rows: each of its batches holds up the rounds of other tables.
  void Growth(Report& report) {
    TableOptions options = OptionsOf(o_, false);
    options.max_rows = o_.grow_to;
    options.initial_rows = o_.grow_to / 64;
    ShardedTable table(*place_.device, collective_, *exchange_, options, DistributionOptions{});
    std::uint64_t rows = 0;
    const auto insert = [&](std::uint64_t count) {
      const std::vector<Key> keys = KeysOfRange(rows, static_cast<std::uint32_t>(count));
      rows += count;
      return SecondsOf([&] { table.Insert(keys); });
    };
    while (rows < options.initial_rows)
      insert(std::min<std::uint64_t>(o_.batch, options.initial_rows - rows));
    std::vector<double> seconds;
    std::uint64_t cells = table.Usage().cells, doublings = 0;
    while (rows < o_.grow_to) {
      seconds.push_back(insert(std::min<std::uint64_t>(o_.batch, o_.grow_to - rows)));
      doublings += std::exchange(cells, table.Usage().cells) < cells ? 1 : 0;
    }
    Must(table.Usage().rows == o_.grow_to, "wrong result: not as many rows as keys");
    Must(doublings > 0, "--grow-to is too small: the hash table has not grown");
    const double longest = *std::ranges::max_element(seconds), median = Quantile(seconds, 0.5);
    const double bytes = o_.batch * (8 + 4 + 2 * 64.0 + 4.0 * o_.dim);
    report.lines.push_back({"growth, all new",
                            static_cast<double>(o_.batch),
                            seconds,
                            bytes,
                            o_.batch / report.random_lines_per_second + bytes / report.copy_bytes_per_second,
                            {}});
    report.figures.push_back({"growth: longest batch, ms", longest * 1e3, 0, 0});
    report.figures.push_back(
        {"growth: longest batch beyond the median one, ms", (longest - median) * 1e3, 0, 0});
  }

  const LivingOptions& o_;
  Collective& collective_;
  Place place_;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace

Subcommand AddLiving(CLI::App& parent) {
  auto options = std::make_shared<LivingOptions>();
  LivingOptions& o = *options;
  CLI::App* app = parent.add_subcommand(
      "living",
      "a table that evicts: find-or-insert while it is full, one eviction, and what scores and an admission "
      "cost; and the longest batch of a table that grows\n"
      "Peer of lookup, step and push: a table without scores or admission.");
  app->option_defaults()->always_capture_default();
  app->add_option("--rows", o.rows, "rows in the full table")->check(CLI::Range(1000U, 2'000'000'000U));
  app->add_option("--dim", o.dim, "elements a row")->check(CLI::Range(1U, TableOptions::kMaxDim));
  app->add_option("--batch", o.batch, "keys a batch")->check(CLI::PositiveNumber);
  app->add_option("--alpha", o.alpha, "exponent of the power law over keys that the table has")
      ->check(CLI::Range(0.0, 10.0));
  app->add_option("--load", o.load, "at most this share of the cells is taken, which are a power of two")
      ->check(CLI::Range(TableOptions::kLeastMaxLoad, TableOptions::kMostMaxLoad));
  app->add_option("--to", o.to, "share of the rows that an eviction leaves")->check(CLI::Range(0.1, 0.999));
  app->add_option("--grow-to", o.grow_to,
                  "rows to which another table grows, from a 64th of them on; 0: none does")
      ->check(CLI::Range(0U, 2'000'000'000U));
  app->add_option("--score", o.score, "what orders the rows")->check(CLI::IsMember({"step", "step_lfu"}));
  AddCommonOptions(*app, o);
  return {app, options,
          [options](Collective& collective) { return LivingBench(*options, collective).Run(); }};
}

}  // namespace slotwise::bench
