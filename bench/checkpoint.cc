// slotwise-bench checkpoint times saving, recovery, and training during a save, by requests to the engine.
//
// A base, a delta and a recovery are compared with the same bytes written or read by the folder's disk past
// the page cache. Then windows of training with back-to-back checkpoints take turns with windows without.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/disk_speed.h"
#include "bench/durable_engine.h"
#include "bench/subcommand.h"
#include "bench/timing.h"

namespace slotwise::bench {
namespace {

struct CheckpointBenchOptions : TrainerOptions {
  double seconds = 2;
  double touched = 0.01;
  std::uint32_t copy_on_write_mib = 256;

  std::uint32_t touched_rows() const {
    return std::max(1U, static_cast<std::uint32_t>(std::lround(rows * touched)));
  }
};

// An engine on a CPU that was busy within the last 25 ms reads a checkpoint slowly, to leave room for a
// trainer's next step. Timing of an idle engine begins after this pause.
constexpr std::chrono::milliseconds kRest{100};

// Returns this process's resident memory in bytes.
std::uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Prints the progress of a run on stderr. A run takes minutes for tables of many GB.
void Say(const char* what, double seconds) { std::fprintf(stderr, "%s: %.2f s\n", what, seconds); }

class Bench {
 public:
  explicit Bench(const CheckpointBenchOptions& o)
      : o_(o), folder_(o.data), data_(folder_.path() + "/data"), disk_(folder_.path()), steps_(o) {
    Start();
    Say("rows made", SecondsOf([&] { engine_->Fill(); }));
  }

  // Times a base, a delta and a start from both, and the disk with the same bytes.
  void SaveAndRecover(bool timed) {
    engine_->TrainingStep();
    // Nothing else uses the disk now. The first base, which is not timed, gives the number of bytes.
    const double written = disk_.DirectWrite(base_bytes_);
    const DurableEngine::Saved base = engine_->Save(false);
    base_bytes_ = base.checkpoint.bytes;
    Say("base saved", base.seconds);
    // A checkpoint waits for the verification of the one before. Here an empty one waits for it, and is
    // itself verified while the digest is computed.
    const double verified = engine_->Save(true).seconds;
    Say("base verified", verified);
    static_cast<void>(engine_->Digest());
    engine_->Touch(o_.touched_rows());
    ++touches_;
    std::this_thread::sleep_for(kRest);
    const DurableEngine::Saved delta = engine_->Save(true);
    Must(delta.checkpoint.delta && delta.checkpoint.rows == o_.touched_rows(),
         "wrong result: the delta does not have the rows that were touched");
    Say("delta saved", delta.seconds);
    const DigestSums digest = engine_->Digest();
    Restart();
    Say("recovered", engine_->recovery_seconds());
    Must(engine_->Digest() == digest, "wrong result: what was saved did not come back");
    if (!timed) return CheckRows();
    base_.push_back(base.seconds);
    verified_.push_back(verified);
    direct_write_.push_back(written);
    delta_.push_back(delta.seconds);
    delta_of_base_.push_back(delta.seconds / base.seconds);
    recovery_.push_back(engine_->recovery_seconds());
    direct_read_.push_back(read_);
    delta_bytes_ = delta.checkpoint.bytes;
  }

  // Runs training steps for a while without checkpoints, and then with.
  void Train() {
    Window(control_, false);
    const std::uint64_t before = ResidentBytes();
    Window(beside_, true);
    grown_ = std::max(grown_, most_resident_ - std::min(before, most_resident_.load()));
  }

  Report Finish();

 private:
  void CheckRows() {
    Say("rows checked", SecondsOf([&] { engine_->CheckRows(o_.touched_rows(), touches_); }));
  }

  void Start() {
    DurabilityOptions durability;
    durability.folder = data_;
    durability.keep = 1;
    durability.max_copy_on_write_bytes = std::uint64_t{o_.copy_on_write_mib} << 20;
    engine_ = std::make_unique<DurableEngine>(o_, steps_, durability);
  }

  void Restart() {
    const std::uint64_t pushed = engine_->steps();
    engine_.reset();  // waits for all verifications
    read_ = disk_.DirectRead(NewestChain());
    ForgetPages(data_);
    Start();
    engine_->GoOnBehind(pushed);
  }

  // Returns the folder of checkpoints. REQUIRES: older ones were removed, so that it holds one chain.
  std::string NewestChain() const { return data_ + "/checkpoints"; }

  // The results of all windows of training.
  struct Training {
    std::vector<double> step;  // seconds, of all windows
    std::vector<double> p99;   // seconds, of each window
    std::vector<double> rate;  // steps a second, of each window
  };

  void Window(Training& training, bool saving) {
    std::atomic<bool> over = false;
    std::thread saver;
    if (saving) {
      saver = std::thread([&] {
        while (!over) {
          engine_->Save(false);
          ++saves_;
          most_resident_ = std::max(most_resident_.load(), ResidentBytes());
        }
      });
    }
    std::vector<double> steps;
    double passed = 0;
    const auto begin = std::chrono::steady_clock::now();
    while (passed < o_.seconds) {
      steps.push_back(SecondsOf([&] { engine_->TrainingStep(); }));
      passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    training.rate.push_back(static_cast<double>(steps.size()) / passed);
    Say(saving ? "steps beside checkpoints" : "steps", passed);
    training.p99.push_back(Quantile(steps, 0.99));
    training.step.insert(training.step.end(), steps.begin(), steps.end());
    over = true;
    if (!saving) return;
    Say("last of these checkpoints saved", SecondsOf([&] { saver.join(); }));
    engine_->Save(true);  // the next window begins once the last base is verified
    engine_->Save(true);
  }

  const CheckpointBenchOptions& o_;
  const DataFolder folder_;
  const std::string data_;
  const DiskSpeed disk_;
  const Steps steps_;
  std::unique_ptr<DurableEngine> engine_;
  std::uint32_t touches_ = 0;
  double read_ = 0;

  std::vector<double> base_, verified_, direct_write_, delta_, delta_of_base_, recovery_, direct_read_;
  std::uint64_t base_bytes_ = 0;
  std::uint64_t delta_bytes_ = 0;
  Training control_;
  Training beside_;
  std::atomic<std::uint64_t> saves_ = 0;
  std::atomic<std::uint64_t> most_resident_ = 0;
  std::uint64_t grown_ = 0;
};

Report Bench::Finish() {
  CheckRows();
  const double rows = o_.rows;
  const auto bytes = static_cast<double>(base_bytes_);
  const auto all_bytes = static_cast<double>(base_bytes_ + delta_bytes_);
  const auto keys = static_cast<double>(o_.keys());
  const double step = Quantile(control_.step, 0.5);
  Report report;
  report.benchmark = "checkpoint";
  report.lines = {
      {"base, idle", rows, base_, bytes, Quantile(direct_write_, 0.5), {}},
      {"direct writes of its bytes", rows, direct_write_, bytes, Quantile(direct_write_, 0.5), {}},
      {"delta, idle",
       static_cast<double>(o_.touched_rows()),
       delta_,
       static_cast<double>(delta_bytes_),
       Quantile(direct_write_, 0.5) * static_cast<double>(delta_bytes_) / bytes,
       {}},
      {"recovery", rows, recovery_, all_bytes, Quantile(direct_read_, 0.5), {}},
      {"direct reads of its bytes", rows, direct_read_, all_bytes, Quantile(direct_read_, 0.5), {}},
      {"step, control", keys, control_.step, static_cast<double>(steps_.bytes()), step, {}},
      {"step beside a checkpoint", keys, beside_.step, static_cast<double>(steps_.bytes()), step, {}}};
  report.figures = {
      {.name = "base, GB/s", .value = bytes / Quantile(base_, 0.5) / 1e9},
      {.name = "direct writes, GB/s", .value = bytes / Quantile(direct_write_, 0.5) / 1e9},
      {.name = "base of direct writes' rate", .value = MedianRatio(direct_write_, base_), .at_least = 0.7},
      {.name = "recovery of direct reads' rate",
       .value = MedianRatio(direct_read_, recovery_),
       .at_least = 0.7},
      {.name = "delta of the base's time", .value = Quantile(delta_of_base_, 0.5), .at_most = 0.03},
      {.name = "until a base was read back and verified, seconds", .value = Quantile(verified_, 0.5)},
      {.name = "p99 of a step, control, ms", .value = Quantile(control_.p99, 0.5) * 1e3},
      {.name = "p99 of a step beside a checkpoint, ms", .value = Quantile(beside_.p99, 0.5) * 1e3},
      {.name = "p99 beside a checkpoint of the control's",
       .value = MedianRatio(beside_.p99, control_.p99),
       .at_most = 2},
      {.name = "steps a second beside a checkpoint of the control's",
       .value = MedianRatio(beside_.rate, control_.rate),
       .at_least = 0.9},
      {.name = "checkpoints beside steps", .value = static_cast<double>(saves_.load())},
      {.name = "memory that the process grew by beside them, MiB",
       .value = static_cast<double>(grown_) / 0x1p20}};
  report.notes = {
      "Windows with checkpoints, one behind the other and each verified, take turns with windows without.\n"
      "Keys of a base and a recovery are rows. The floor of a step is the control's.",
      "The digest was the same behind each restart, and rows were what the steps made of them: all, or 4 M "
      "of a\n"
      "larger table."};
  if (!disk_.takes_direct())
    report.notes.emplace_back(
        "This file system takes no direct I/O: the floors went through the page cache.");
  return report;
}

Report RunCheckpoint(const CheckpointBenchOptions& o, const Collective& collective) {
  Must(collective.size() == 1, "slotwise-bench checkpoint measures one rank: run it without mpirun");
  Bench bench(o);
  for (int repeat = -1; repeat < o.repeats; ++repeat) bench.SaveAndRecover(repeat >= 0);
  for (int repeat = 0; repeat < o.repeats; ++repeat) bench.Train();
  Report report = bench.Finish();
  report.title = "checkpoints: " + std::to_string(o.rows) + " rows x " + std::to_string(o.dim) +
                 ", steps of " + std::to_string(o.batch) + " x " + std::to_string(o.slots) + " bags of " +
                 std::to_string(o.hot) + " keys";
  report.options = ToJson(o);
  report.options.update(
      {{"seconds", o.seconds}, {"touched", o.touched}, {"copy_on_write_mib", o.copy_on_write_mib}});
  const Place place = MakePlace(o, collective);
  report.device = place.device->Name();
  report.threads = place.threads;
  report.copy_bytes_per_second = place.memory->CopyBytesPerSecond();
  report.random_lines_per_second = place.memory->LinesPerSecond();
  return report;
}

}  // namespace

Subcommand AddCheckpoint(CLI::App& parent) {
  auto options = std::make_shared<CheckpointBenchOptions>();
  CheckpointBenchOptions& o = *options;
  CLI::App* app = parent.add_subcommand(
      "checkpoint",
      "saving, recovering, and training beside a save, with the disk's direct I/O as the floor");
  AddTrainerOptions(*app, o);
  app->add_option("--seconds", o.seconds, "of training, with and without checkpoints, a repeat")
      ->check(CLI::Range(0.01, 600.0));
  app->add_option("--touched", o.touched, "share of the rows that a delta has")->check(CLI::Range(0.0, 1.0));
  app->add_option("--copy-on-write-mib", o.copy_on_write_mib, "durability.max_copy_on_write_mib")
      ->check(CLI::Range(0, 1 << 20));
  return {app, options, [options](Collective& collective) { return RunCheckpoint(*options, collective); }};
}

}  // namespace slotwise::bench
