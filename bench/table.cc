// slotwise-bench table times find, find-or-insert and cold insert of 64-bit keys.
//
// A rank's table is a shard with rows of one element, driven through shard.h as the server does. Ranks have
// keys of their own and do not communicate; their rates add up.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_table.h"
#include "bench/on_device.h"
#include "bench/peers/maps.h"
#include "bench/subcommand.h"
#include "bench/timing.h"
#include "bench/workload.h"
#include "kernels/body/hash.h"

namespace slotwise::bench {
namespace {

constexpr std::uint32_t kBatches = 4;  // used in turn, so that no batch is still in the cache

struct TableBenchOptions : CommonOptions {
  std::uint32_t keys = 16'777'216;
  std::uint32_t batch = 1'048'576;
  double load = 0.5;
  double alpha = 0;
};

TableOptions OptionsOf(const TableBenchOptions& o, std::uint64_t keys) {
  TableOptions options;
  options.name = TableName("bench");
  options.dim = 1;
  options.optimizer.learning_rate = 1;
  options.initializer = {.kind = InitializerKind::kConstant, .mean = 1};
  options.initial_rows = keys;
  options.max_load = static_cast<float>(o.load);
  return options;
}

// Holds this rank's keys in device memory, in pieces of one batch each.
class Pieces {
 public:
  Pieces(Device& device, std::uint64_t first, std::uint32_t keys, std::uint32_t batch) {
    for (std::uint32_t at = 0; at < keys; at += batch) {
      const std::uint32_t n = std::min(batch, keys - at);
      keys_.push_back(std::make_unique<OnDevice<Key>>(device, KeysOfRange(first + at, n)));
      offsets_.push_back(std::make_unique<OnDevice<std::uint32_t>>(device, EvenOffsets(n, 1)));
    }
  }
  void InsertInto(BenchTable& table) const {
    for (std::size_t i = 0; i < keys_.size(); ++i) table.FindOrInsert(*keys_[i], *offsets_[i]);
    table.Wait();
  }

 private:
  std::vector<std::unique_ptr<OnDevice<Key>>> keys_;
  std::vector<std::unique_ptr<OnDevice<std::uint32_t>>> offsets_;
};

// Runs the benchmark of one rank: its table, batches and peers.
class TableBench {
 public:
  TableBench(const TableBenchOptions& options, Collective& collective)
      : o_(options), collective_(collective), place_(MakePlace(options, collective)) {
    const auto ranks = static_cast<std::uint64_t>(collective.size());
    const auto me = static_cast<std::uint64_t>(Value(collective.rank()));
    first_ = o_.keys * me / ranks;
    keys_ = static_cast<std::uint32_t>(o_.keys * (me + 1) / ranks - first_);
    Must(keys_ > 0, "--keys must be at least the number of ranks");
    table_options_ = OptionsOf(o_, keys_);
    for (std::uint32_t b = 0; b < kBatches; ++b) {
      rows_.push_back(DrawRows(o_.batch, keys_, o_.alpha, o_.seed + b));
      batches_.push_back(KeysOf(rows_.back()));
      for (std::size_t i = 0; i < o_.batch; ++i) batches_[b][i] = KeyOf(first_ + rows_[b][i]);
      on_device_.push_back(std::make_unique<OnDevice<Key>>(*place_.device, batches_[b]));
    }
    offsets_ = std::make_unique<OnDevice<std::uint32_t>>(*place_.device, EvenOffsets(o_.batch, 1));
    if (o_.peers && collective.size() == 1 && o_.backend == "cpu") peers_ = MakePeerMaps();
  }

  Report Run() {
    Report report;
    report.benchmark = "table";
    report.device = place_.device->Name();
    report.ranks = collective_.size();
    report.threads = place_.threads;
    const Pieces pieces(*place_.device, first_, keys_, o_.batch);
    const std::vector<Key> all = peers_.empty() ? std::vector<Key>() : KeysOfRange(first_, keys_);

    std::vector<Contender> insert = ColdInserts(pieces, all);
    TakeTurns(std::min(o_.repeats, 3), insert);
    CheckTable(*place_.device, *table_, first_, keys_, rows_[0]);
    CheckPeers();
    std::vector<Contender> find = Finds(false);
    TakeTurns(o_.repeats, find);
    std::vector<Contender> find_or_insert = Finds(true);
    TakeTurns(o_.repeats, find_or_insert);
    Must(table_->shard().Usage().rows == keys_, "wrong result: present keys added rows");

    report.copy_bytes_per_second = place_.memory->CopyBytesPerSecond();
    report.random_lines_per_second = place_.memory->LinesPerSecond();
    const double copy = report.copy_bytes_per_second;
    const double n = o_.batch;
    constexpr double kLine = 64;
    // A find reads a key and its line of cells, and writes a row index.
    const double find_bytes = n * (8 + kLine + 4);
    const double find_seconds = Gather(rows_[0]) + n * (8 + 4) / copy;
    const double all_keys = keys_;
    // An insert also writes the line back, and the new row.
    const double insert_bytes = all_keys * (8 + 2 * kLine + 4 + 4);
    const double insert_seconds = Gather(rows_[0]) * all_keys / n + all_keys * (8 + kLine + 4 + 4) / copy;
    AddLine(report, "find", o_.batch, find, find_bytes, find_seconds);
    AddLine(report, "find-or-insert, present", o_.batch, find_or_insert, find_bytes, find_seconds);
    AddLine(report, "insert, cold", keys_, insert, insert_bytes, insert_seconds);
    Describe(report);
    return report;
  }

 private:
  // Each run fills an empty table; making the table is not timed.
  std::vector<Contender> ColdInserts(const Pieces& pieces, const std::vector<Key>& all) {
    std::vector<Contender> contenders;
    contenders.push_back({"slotwise",
                          [&] {
                            table_.reset();
                            table_ = std::make_unique<BenchTable>(*place_.device, table_options_);
                            return SecondsOfAll(collective_, [&] { pieces.InsertInto(*table_); });
                          },
                          {}});
    for (const auto& peer : peers_) {
      contenders.push_back({peer->name(),
                            [&] {
                              peer->Reset(keys_);
                              found_.resize(all.size());
                              return SecondsOf([&] { peer->FindOrInsert(all, found_.data()); });
                            },
                            {}});
    }
    return contenders;
  }

  std::vector<Contender> Finds(bool insert) {
    std::vector<Contender> contenders;
    contenders.push_back({"slotwise",
                          [this, insert, turn = 0U]() mutable {
                            const int calls = CallsInARow(*place_.device);
                            return SecondsOfAll(collective_,
                                                [&] {
                                                  for (int c = 0; c < calls; ++c) {
                                                    const auto& keys = *on_device_[turn++ % kBatches];
                                                    insert ? table_->FindOrInsert(keys, *offsets_)
                                                           : table_->Find(keys, *offsets_);
                                                  }
                                                  table_->Wait();
                                                }) /
                                   calls;
                          },
                          {}});
    for (const auto& peer : peers_) {
      contenders.push_back({peer->name(),
                            [this, insert, &peer, turn = 0U]() mutable {
                              const auto& keys = batches_[turn++ % kBatches];
                              return SecondsOf([&] {
                                insert ? peer->FindOrInsert(keys, found_.data())
                                       : peer->Find(keys, found_.data());
                              });
                            },
                            {}});
    }
    return contenders;
  }

  void CheckPeers() {
    found_.resize(std::max<std::size_t>(found_.size(), o_.batch));
    for (const auto& peer : peers_) {
      peer->Find(batches_[0], found_.data());
      for (std::size_t i = 0; i < o_.batch; ++i) {
        Must(found_[i] == RowIndex{rows_[0][i]}, "wrong result: " + peer->name() + " has another row");
      }
    }
  }

  double Gather(std::span<const std::uint32_t> rows) {
    const std::uint64_t cells = table_->shard().Usage().cells;
    std::vector<std::uint32_t> cells_read(rows.size());
    std::ranges::transform(rows, cells_read.begin(), [&](std::uint32_t row) {
      return static_cast<std::uint32_t>(body::Mix64(Value(KeyOf(first_ + row))) % cells);
    });
    return place_.memory->GatherSeconds(cells_read, cells, 16);
  }

  void AddLine(Report& report, const char* name, std::uint32_t keys, const std::vector<Contender>& contenders,
               double bytes, double floor_seconds) {
    Line line{name,  static_cast<double>(keys) * collective_.size(), contenders[0].seconds,
              bytes, MaxOverRanks(collective_, floor_seconds),       {}};
    for (std::size_t i = 1; i < contenders.size(); ++i) {
      line.peers.push_back({contenders[i].name, 1, contenders[i].seconds});
    }
    report.lines.push_back(std::move(line));
  }

  void Describe(Report& report) {
    const double load = static_cast<double>(keys_) / static_cast<double>(table_->shard().Usage().cells);
    report.title = "table: " + std::to_string(o_.keys) + " keys at load " +
                   std::to_string(load).substr(0, 5) + ", batches of " + std::to_string(o_.batch) +
                   " a rank, alpha " + std::to_string(o_.alpha).substr(0, 4);
    report.options = ToJson(o_);
    report.options.update({{"keys", o_.keys}, {"batch", o_.batch}, {"load", o_.load}, {"alpha", o_.alpha}});
    report.options["load_of_table"] = load;
    report.notes.emplace_back(
        "Cold insert: into an empty table made beforehand for that many keys. The maps touch much of their "
        "memory only "
        "then.");
    if (o_.peers && peers_.empty()) {
      report.notes.emplace_back(
          "The peers, maps in host memory, are compared with one rank on the CPU only.");
    } else if (peers_.size() == 1) {
      report.notes.emplace_back("The peer absl::flat_hash_map is not in this build: it has no abseil.");
    }
  }

  const TableBenchOptions& o_;
  Collective& collective_;
  Place place_;
  std::uint64_t first_ = 0;  // this rank has the keys of rows first_ .. first_ + keys_ - 1
  std::uint32_t keys_ = 0;
  TableOptions table_options_;
  std::unique_ptr<BenchTable> table_;
  std::vector<std::vector<std::uint32_t>> rows_;  // of each batch, counted from first_
  std::vector<std::vector<Key>> batches_;
  std::vector<std::unique_ptr<OnDevice<Key>>> on_device_;
  std::unique_ptr<OnDevice<std::uint32_t>> offsets_;
  std::vector<std::unique_ptr<PeerMap>> peers_;
  std::vector<RowIndex> found_;
};

}  // namespace

Subcommand AddTable(CLI::App& parent) {
  auto options = std::make_shared<TableBenchOptions>();
  TableBenchOptions& o = *options;
  CLI::App* app = parent.add_subcommand(
      "table",
      "the hash table: find, find-or-insert of present keys, cold insert, of 64-bit keys\n"
      "Peers, on one thread each: std::unordered_map and, where abseil was found, absl::flat_hash_map.");
  app->option_defaults()->always_capture_default();
  app->add_option("--keys", o.keys, "keys in the table, over all ranks")->check(CLI::PositiveNumber);
  app->add_option("--batch", o.batch, "keys a call and rank")->check(CLI::PositiveNumber);
  app->add_option("--load", o.load, "at most this share of the cells is taken, which are a power of two")
      ->check(CLI::Range(TableOptions::kLeastMaxLoad, TableOptions::kMostMaxLoad));
  app->add_option("--alpha", o.alpha,
                  "exponent of the power law over the keys that are asked for; 0 is uniform")
      ->check(CLI::Range(0.0, 10.0));
  AddCommonOptions(*app, o);
  return {app, options, [options](Collective& collective) { return TableBench(*options, collective).Run(); }};
}

}  // namespace slotwise::bench
