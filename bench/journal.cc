// slotwise-bench journal times pushes through the engine with durability none, interval and sync, and
// compares them with the folder's disk, which writes records of the same size with an fdatasync after each.
//
// A trainer that waits for each step and several steps in flight give different figures: with several, the
// journal writes all queued records with one fdatasync.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bench/disk_speed.h"
#include "bench/durable_engine.h"
#include "bench/subcommand.h"
#include "bench/timing.h"

namespace slotwise::bench {
namespace {

struct JournalBenchOptions : TrainerOptions {
  std::uint32_t in_flight = 8;
  double seconds = 0.5;
  std::uint32_t interval = 2;
};

constexpr std::array kModes{DurabilityMode::kNone, DurabilityMode::kInterval, DurabilityMode::kSync};
constexpr std::array<const char*, 3> kNames{"none", "interval", "sync"};
constexpr double kGoal = 0.7;

DurabilityOptions DurabilityOf(DurabilityMode mode, const std::string& folder, const JournalBenchOptions& o) {
  DurabilityOptions durability;
  durability.mode = mode;
  durability.folder = folder;
  durability.interval = std::chrono::seconds(o.interval);
  return durability;
}

// The engine of one mode, and its measurements.
struct Contestant {
  DurabilityMode mode;
  std::string folder;
  std::unique_ptr<DurableEngine> engine;
  std::array<std::vector<double>, 2> seconds;  // seconds a push: one in flight, and several
};

// Pushes, restarts in the same folder if the mode keeps the state, and checks every row before and after
// that.
void Check(Contestant& c, const JournalBenchOptions& o, const Steps& steps) {
  const DurabilityOptions durability = DurabilityOf(c.mode, c.folder, o);
  c.engine = std::make_unique<DurableEngine>(o, steps, durability);
  c.engine->Fill();
  c.engine->PushFor(o.seconds / 4, 1);
  c.engine->PushFor(o.seconds / 4, o.in_flight);
  c.engine->CheckRows();
  if (c.mode == DurabilityMode::kNone) return;
  const DigestSums digest = c.engine->Digest();
  const std::uint64_t pushed = c.engine->steps();
  c.engine.reset();
  c.engine = std::make_unique<DurableEngine>(o, steps, durability);
  c.engine->GoOnBehind(pushed);
  Must(c.engine->Digest() == digest, "wrong result: what was acknowledged did not come back");
  c.engine->CheckRows();
}

// Returns the seconds a push. An engine of `interval` makes checkpoints meanwhile: its run is long enough for
// at least one, and it makes none while other contenders run.
double Turn(Contestant& c, const JournalBenchOptions& o, std::size_t in_flight) {
  const bool checkpoints = c.mode == DurabilityMode::kInterval;
  std::uint64_t pushed = 0;
  const double seconds = SecondsOf([&] {
    pushed = c.engine->PushFor(checkpoints ? std::max<double>(o.seconds, o.interval) : o.seconds, in_flight);
  });
  if (checkpoints) {
    c.engine->Save(true);
    c.engine->Save(true);  // once the previous one is verified
  }
  return seconds / static_cast<double>(pushed);
}

Report RunJournal(const JournalBenchOptions& o, const Collective& collective) {
  Must(collective.size() == 1, "slotwise-bench journal measures one rank: run it without mpirun");
  const DataFolder folder(o.data);
  const DiskSpeed disk(folder.path());
  const Steps steps(o);
  // The journal's overhead for a push, about.
  const std::size_t record = steps.bytes() + 200;
  std::array<Contestant, kModes.size()> contestants;
  for (std::size_t m = 0; m < kModes.size(); ++m) {
    contestants[m].mode = kModes[m];
    contestants[m].folder = folder.path() + "/" + kNames[m];
    Check(contestants[m], o, steps);
  }
  const std::array<std::size_t, 2> in_flight{1, o.in_flight};
  std::array<std::vector<double>, 2> synced;  // seconds a record: one for each fdatasync, and several
  std::vector<double> large;                  // seconds a large block
  for (int repeat = -1; repeat < o.repeats; ++repeat) {
    for (std::size_t level = 0; level < in_flight.size(); ++level) {
      for (Contestant& c : contestants) {
        const double seconds = Turn(c, o, in_flight[level]);
        if (repeat >= 0) c.seconds[level].push_back(seconds);
      }
      const double seconds = disk.SyncedAppend(record * in_flight[level], o.seconds);
      if (repeat >= 0) synced[level].push_back(seconds / static_cast<double>(in_flight[level]));
    }
    large.push_back(disk.SyncedAppend(DiskSpeed::kBlock, o.seconds));
  }
  for (Contestant& c : contestants) c.engine->CheckRows();

  Report report;
  report.benchmark = "journal";
  report.title = "pushes with durability none, interval and sync: " + std::to_string(o.rows) + " rows x " +
                 std::to_string(o.dim) + ", " + std::to_string(o.batch) + " x " + std::to_string(o.slots) +
                 " bags of " + std::to_string(o.hot) + " keys, " + std::to_string(steps.bytes()) +
                 " bytes a push";
  report.options = ToJson(o);
  report.options.update({{"in_flight", o.in_flight}, {"seconds", o.seconds}, {"interval", o.interval}});
  const Place place = MakePlace(o, collective);
  report.device = place.device->Name();
  report.threads = place.threads;
  report.copy_bytes_per_second = place.memory->CopyBytesPerSecond();
  report.random_lines_per_second = place.memory->LinesPerSecond();
  const auto keys = static_cast<double>(o.keys());
  for (std::size_t level = 0; level < in_flight.size(); ++level) {
    const double without = Quantile(contestants[0].seconds[level], 0.5);
    const double floor = std::max(without, Quantile(synced[level], 0.5));
    const std::string flight = ", " + std::to_string(in_flight[level]) + " in flight";
    for (std::size_t m = 0; m < kModes.size(); ++m) {
      const bool syncs = kModes[m] == DurabilityMode::kSync;
      report.lines.push_back({"push, " + std::string(kNames[m]) + flight,
                              keys,
                              contestants[m].seconds[level],
                              static_cast<double>(record),
                              syncs ? floor : without,
                              {}});
    }
    report.lines.push_back({"disk, " + std::to_string(in_flight[level]) + " a sync",
                            keys,
                            synced[level],
                            static_cast<double>(record),
                            Quantile(synced[level], 0.5),
                            {}});
    // The turns of one repeat are close in time, so the disk's load by other programs is the same in all of
    // them.
    std::vector<double> of_single;
    std::vector<double> of_groups;
    for (std::size_t i = 0; i < synced[level].size(); ++i) {
      const double none = contestants[0].seconds[level][i];
      const double sync = contestants[2].seconds[level][i];
      of_single.push_back(std::max(none, synced[0][i]) / sync);
      of_groups.push_back(std::max(none, synced[level][i]) / sync);
    }
    report.figures.push_back({.name = "sync of the slower of none and a record a sync" + flight,
                              .value = Quantile(of_single, 0.5),
                              .at_least = kGoal});
    if (level == 0) continue;
    report.figures.push_back({.name = "sync of the slower of none and all of them a sync" + flight,
                              .value = Quantile(of_groups, 0.5)});
  }
  report.figures.push_back({.name = "disk, synced blocks of 16 MiB, GB/s",
                            .value = static_cast<double>(DiskSpeed::kBlock) / Quantile(large, 0.5) / 1e9});
  report.notes = {
      "The floor of none and interval is the time of none. The floor of sync is the longer of that and of\n"
      "what the disk takes for records of the same bytes with an fdatasync behind each, or behind as many "
      "as\n"
      "there are in flight.",
      "Rows were checked against the steps, before and behind a restart where the mode promises it."};
  return report;
}

}  // namespace

Subcommand AddJournal(CLI::App& parent) {
  auto options = std::make_shared<JournalBenchOptions>();
  JournalBenchOptions& o = *options;
  CLI::App* app = parent.add_subcommand(
      "journal", "pushes with durability none, interval and sync, beside the disk's synced appends");
  AddTrainerOptions(*app, o);
  app->add_option("--in-flight", o.in_flight, "pushes at any time, beside one")->check(CLI::Range(2, 1024));
  app->add_option("--seconds", o.seconds, "of a timed run")->check(CLI::Range(0.01, 600.0));
  app->add_option("--interval", o.interval, "durability.interval_s of interval")->check(CLI::Range(1, 600));
  return {app, options, [options](Collective& collective) { return RunJournal(*options, collective); }};
}

}  // namespace slotwise::bench
