// slotwise-bench tables compares calls for several tables of one slot with calls for one table of as many
// slots, by the C++ client over a loopback socket.
//
// Both have the same rows, and each call names the same keys, so the difference is the cost of several
// tables. One call is made at a time, like a trainer's.
// call is made at a time, as a trainer makes it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/local_server.h"
#include "bench/subcommand.h"
#include "bench/timing.h"
#include "slotwise/client.h"

namespace slotwise::bench {
namespace {

struct TablesBenchOptions : CommonOptions {
  std::uint32_t tables = 26;
  std::uint32_t rows = 50'000;
  std::uint32_t dim = 64;
  std::uint32_t samples = 4096;
  std::uint32_t calls = 8;

  std::size_t keys() const { return std::size_t{samples} * tables; }
};

constexpr const char* kWhole = "slotwise-bench-whole";
// The largest allowed ratio of the time of several tables to that of one.
constexpr double kGoal = 1.15;

std::string NameOf(std::uint32_t table) { return "slotwise-bench-" + std::to_string(table); }

// Every element of a key's row has this value, because pushes are of zeros. No two slots share a key.
float ValueOf(Key key) { return static_cast<float>(Value(key) % 65'521); }

// Makes the same calls to one table of all slots, and to several tables of one slot.
class Bench {
 public:
  Bench(const TablesBenchOptions& o, Client& client) : o_(o), client_(client), values_(o.keys() * o.dim) {
    MakeBatch();
    MakeTable(kWhole, 0, o.tables);
    for (std::uint32_t table = 0; table < o.tables; ++table) MakeTable(NameOf(table), table, 1);
  }

  ~Bench() {
    Drop(kWhole);
    for (std::uint32_t table = 0; table < o_.tables; ++table) Drop(NameOf(table));
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void LookUpWhole(LookupMode mode = LookupMode::kEval) {
    Must(client_.Lookup(kWhole, {keys_, {}}, mode, values_), "lookup");
  }
  void LookUpEach(LookupMode mode = LookupMode::kEval) {
    Must(client_.Lookup(lookups_, mode), "lookup of several tables");
  }
  void StepWhole() {
    LookUpWhole(LookupMode::kTrain);
    Must(client_.Push(kWhole, {keys_, {}}, zeros_, client_.session().Next()), "push");
  }
  void StepEach() {
    LookUpEach(LookupMode::kTrain);
    Must(client_.Push(pushes_, client_.session().Next()), "push to several tables");
  }

  // Looks the batch up in both ways. Every row must be the imported one.
  void Check() {
    std::ranges::fill(values_, -1.0F);
    LookUpWhole();
    Compare([&](std::size_t sample, std::uint32_t table) { return sample * o_.tables + table; }, keys_);
    std::ranges::fill(values_, -1.0F);
    LookUpEach();
    Compare([&](std::size_t sample, std::size_t table) { return table * o_.samples + sample; },
            keys_by_table_);
  }

 private:
  void MakeBatch() {
    std::mt19937_64 random(o_.seed);
    keys_.resize(o_.keys());
    keys_by_table_.resize(o_.keys());
    zeros_.resize(o_.keys() * o_.dim);
    for (std::size_t sample = 0; sample < o_.samples; ++sample) {
      for (std::uint32_t table = 0; table < o_.tables; ++table) {
        const Key key{std::uint64_t{table} * o_.rows + random() % o_.rows};
        keys_[sample * o_.tables + table] = key;
        keys_by_table_[std::size_t{table} * o_.samples + sample] = key;
      }
    }
    names_.reserve(o_.tables);
    for (std::uint32_t table = 0; table < o_.tables; ++table) {
      const std::string& name = names_.emplace_back(NameOf(table));
      const auto keys = std::span(keys_by_table_).subspan(std::size_t{table} * o_.samples, o_.samples);
      const std::size_t first = std::size_t{table} * o_.samples * o_.dim;
      const std::size_t size = std::size_t{o_.samples} * o_.dim;
      lookups_.push_back({name, {keys, {}}, std::span(values_).subspan(first, size)});
      pushes_.push_back({name, {keys, {}}, std::span<const float>(zeros_).subspan(first, size)});
    }
  }

  // Makes a table with the rows of `slots` slots, from slot `first` on.
  void MakeTable(const std::string& name, std::uint32_t first, std::uint32_t slots) {
    Drop(name);  // an aborted run may have left it
    TableOptions table;
    table.name = TableName(name);
    table.dim = o_.dim;
    table.slots = slots;
    table.initial_rows = std::uint64_t{slots} * o_.rows;
    Must(client_.CreateTable(table), "cannot make a table");
    for (std::uint32_t slot = first; slot < first + slots; ++slot) {
      std::vector<Key> keys(o_.rows);
      std::vector<float> values(std::size_t{o_.rows} * o_.dim);
      for (std::uint32_t row = 0; row < o_.rows; ++row) {
        keys[row] = Key{std::uint64_t{slot} * o_.rows + row};
        std::fill_n(values.begin() + std::ptrdiff_t{row} * o_.dim, o_.dim, ValueOf(keys[row]));
      }
      Must(client_.Import(name, {keys, values, {}}), "cannot fill a table");
    }
  }

  void Drop(const std::string& name) { static_cast<void>(client_.DropTable(name)); }

  // place(sample, table) is the index of a sample's row in `values_`, and of its key in `keys`.
  template <class Place>
  void Compare(Place place, const std::vector<Key>& keys) const {
    for (std::size_t sample = 0; sample < o_.samples; ++sample) {
      for (std::uint32_t table = 0; table < o_.tables; ++table) {
        const std::size_t at = place(sample, table);
        for (std::uint32_t j = 0; j < o_.dim; ++j) {
          Must(values_[at * o_.dim + j] == ValueOf(keys[at]), "wrong result: a row is not what was imported");
        }
      }
    }
  }

  const TablesBenchOptions& o_;
  Client& client_;
  std::vector<Key> keys_;           // [samples][tables]
  std::vector<Key> keys_by_table_;  // [tables][samples]
  std::vector<float> values_;
  std::vector<float> zeros_;
  std::vector<std::string> names_;
  std::vector<TableLookup> lookups_;
  std::vector<TablePush> pushes_;
};

Report RunTables(const TablesBenchOptions& o, Collective& collective) {
  Must(collective.size() == 1, "slotwise-bench tables measures one rank: run it without mpirun");
  const Place place = MakePlace(o, collective);
  const LocalServer server(*place.device);
  Client client = Must(Client::Connect({server.address()}), "cannot connect");
  Bench bench(o, client);
  bench.Check();

  const auto timed = [&](auto call) {
    return [&o, call] {
      return SecondsOf([&] {
        for (std::uint32_t i = 0; i < o.calls; ++i) call();
      });
    };
  };
  const std::string whole = ", one table of " + std::to_string(o.tables) + " slots";
  const std::string each = ", " + std::to_string(o.tables) + " tables of one slot";
  std::vector<Contender> contenders{
      {"lookup" + whole, timed([&] { bench.LookUpWhole(); }), {}},
      {"lookup" + each, timed([&] { bench.LookUpEach(); }), {}},
      {"step" + whole, timed([&] { bench.StepWhole(); }), {}},
      {"step" + each, timed([&] { bench.StepEach(); }), {}},
  };
  TakeTurns(o.repeats, contenders);
  bench.Check();

  Report report;
  report.benchmark = "tables";
  report.title = "calls of " + std::to_string(o.tables) +
                 " tables of one slot, and of one table of as many: " + std::to_string(o.samples) +
                 " samples x dim " + std::to_string(o.dim) + " over loopback gRPC, " +
                 std::to_string(o.calls) + " calls, one at a time";
  report.device = place.device->Name();
  report.threads = place.threads;
  report.copy_bytes_per_second = place.memory->CopyBytesPerSecond();
  report.random_lines_per_second = place.memory->LinesPerSecond();
  report.options = ToJson(static_cast<const CommonOptions&>(o));
  report.options.update(
      {{"tables", o.tables}, {"rows", o.rows}, {"dim", o.dim}, {"samples", o.samples}, {"calls", o.calls}});
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const double travels = i < 2 ? 1 : 2;  // a step moves its rows one way, and its gradients the other
    Line line{.name = contenders[i].name,
              .keys = static_cast<double>(o.keys()) * o.calls,
              .seconds = contenders[i].seconds,
              .bytes = travels * 2 * static_cast<double>(o.keys() * o.dim * sizeof(float)) * o.calls,
              .floor_seconds = 0,
              .peers = {}};
    line.floor_seconds = line.bytes / report.copy_bytes_per_second;
    report.lines.push_back(std::move(line));
  }
  for (std::size_t i = 0; i < contenders.size(); i += 2) {
    report.figures.push_back(
        {.name = std::string(i == 0 ? "lookup" : "step") + each + ", of one table's time",
         .value = MedianRatio(contenders[i + 1].seconds, contenders[i].seconds),
         .at_most = kGoal});
  }
  report.notes.emplace_back("The floor is one copy of what travels, in memory.");
  return report;
}

}  // namespace

Subcommand AddTables(CLI::App& parent) {
  auto options = std::make_shared<TablesBenchOptions>();
  TablesBenchOptions& o = *options;
  CLI::App* app =
      parent.add_subcommand("tables", "calls of several tables of one slot beside one table of all slots");
  app->option_defaults()->always_capture_default();
  app->add_option("--tables", o.tables, "tables of one slot, and slots of the one table")
      ->check(CLI::Range(1, 1024));
  app->add_option("--rows", o.rows, "rows a slot")->check(CLI::Range(1, 1 << 24));
  app->add_option("--dim", o.dim, "elements a row")->check(CLI::Range(1, 4096));
  app->add_option("--samples", o.samples, "samples a call, of a key a slot")->check(CLI::PositiveNumber);
  app->add_option("--calls", o.calls, "calls a timed run")->check(CLI::Range(1, 10'000));
  AddCommonOptions(*app, o);
  return {app, options, [options](Collective& collective) { return RunTables(*options, collective); }};
}

}  // namespace slotwise::bench
