// slotwise-bench rounds times lookups through the engine, from arrays in the host's memory to pooled rows in
// the host's memory, as a server makes them between decoding a request and encoding its reply.
//
// Every rank looks up its own samples of a batch, with one lookup in flight and with several. With one, the
// time is the sum of a round's stages; with several, a GPU's rounds overlap.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/subcommand.h"
#include "bench/timing.h"
#include "bench/workload.h"
#include "kernels/body/initial_value.h"
#include "server/engine/engine.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/output_distributor.h"

namespace slotwise::bench {
namespace {

struct RoundsOptions : BatchOptions {
  std::uint32_t in_flight = 4;
  std::uint32_t lookups = 16;
};

TableOptions TableOf(const RoundsOptions& o) {
  TableOptions table;
  table.name = TableName("bench");
  table.dim = o.dim;
  table.slots = o.slots;
  table.initializer = {-1, 1, o.seed};
  table.initial_rows = o.rows;
  return table;
}

// Lets ranks wait for each other: each pushes an empty part of the same step.
class Meeting {
 public:
  Meeting(Engine& engine, TableId table, const Collective& collective)
      : engine_(engine),
        table_(table),
        me_(static_cast<std::uint32_t>(Value(collective.rank()))),
        ranks_(static_cast<std::uint32_t>(collective.size())) {}

  // The engine's thread calls `then` on every rank before any of the next rounds.
  void Come(const std::function<void()>& then = [] {}) {
    BatchPart nothing;
    nothing.offsets = BatchArray<std::uint32_t>(1);
    nothing.offsets.data()[0] = 0;
    std::promise<Result<AppliedStep>> met;
    engine_.Submit(PushRequest{.table = table_,
                               .step = {.session = 1, .number = ++meetings_, .part = me_, .parts = ranks_},
                               .batch = std::move(nothing),
                               .done = [&](const Result<AppliedStep>& step) {
                                 then();
                                 met.set_value(step);
                               }});
    Must(met.get_future().get(), "another rank is missing");
  }

 private:
  Engine& engine_;
  const TableId table_;
  const std::uint32_t me_;
  const std::uint32_t ranks_;
  std::uint64_t meetings_ = 0;
};

// A rank's engine, on its own thread, and the requests to it.
//
// All requests are for the same samples, but each begins with another sample and wraps around, so that the
// answer to one request is wrong for another.
class Asker {
 public:
  Asker(Engine& engine, Meeting& meeting, const RoundsOptions& o, TableId table,
        std::span<const std::uint32_t> my_rows)
      : engine_(engine), meeting_(meeting), o_(o), table_(table), rows_(my_rows) {}

  // Looks up in both modes, one request and `in_flight` at once, and checks that every bag is the sum of its
  // rows' initial values. Computes this sum for some bags; the others must equal the first answer.
  void Check() {
    Prepare(LookupMode::kTrain, 1);
    kept_.assign(1, {});
    Run(1);
    sums_ = std::move(kept_[0]);
    CheckSums();
    for (const LookupMode mode : {LookupMode::kTrain, LookupMode::kEval}) {
      Prepare(mode, o_.in_flight);
      kept_.assign(o_.in_flight, {});
      Run(o_.in_flight);
      for (std::size_t i = 0; i < kept_.size(); ++i) {
        for (std::size_t bag = 0; bag < bags(); ++bag) Must(IsRight(kept_[i], i, bag), kWrong);
      }
    }
    kept_.clear();
  }

  // Makes the requests of the next Run, because decoding them is no part of an engine's time.
  void Prepare(LookupMode mode, std::uint32_t lookups) {
    requests_.clear();
    for (std::uint32_t i = 0; i < lookups; ++i) requests_.push_back(Request(mode, i));
  }

  // Returns the seconds until all requests are answered, with `in_flight` at any time, from a round on that
  // has every rank's first request. Throws std::runtime_error if a request was refused, or if its first or
  // last bag is wrong. Checking every bag would take most of the time.
  double Run(std::uint32_t in_flight) {
    to_send_ = requests_.size();
    to_answer_ = to_send_;
    meeting_.Come();  // the other ranks may have been busy
    const double seconds = SecondsOf([&] {
      meeting_.Come([&] {
        for (std::uint32_t i = 0; i < in_flight; ++i) Send();
      });
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return to_answer_ == 0; });
    });
    Must(failure_.ok(), "lookup: " + failure_.message());
    Must(right_, kWrong);
    return seconds;
  }

 private:
  static constexpr const char* kWrong = "wrong result: a bag is not the sum of its rows";

  std::size_t samples() const { return rows_.size() / (std::size_t{o_.slots} * o_.hot); }
  std::size_t bags() const { return rows_.size() / o_.hot; }
  // Returns the index in rows_ of a request's bag.
  std::size_t BagOfAll(std::size_t request, std::size_t bag) const {
    constexpr std::size_t kApart = 7919;
    return (bag + request * kApart * o_.slots) % bags();
  }

  LookupRequest Request(LookupMode mode, std::size_t number) {
    LookupRequest request{.table = table_, .mode = mode, .batch = {}, .done = {}};
    BatchPart& part = request.batch;
    part.samples = static_cast<std::uint32_t>(samples());
    part.keys = BatchArray<Key>(rows_.size(), &engine_.arrays());
    part.offsets = BatchArray<std::uint32_t>(bags() + 1);
    for (std::size_t bag = 0; bag < bags(); ++bag) {
      const auto rows = rows_.subspan(BagOfAll(number, bag) * o_.hot, o_.hot);
      std::ranges::transform(rows, part.keys.data() + bag * o_.hot,
                             [](std::uint32_t row) { return KeyOf(row); });
    }
    for (std::size_t bag = 0; bag <= bags(); ++bag) {
      part.offsets.data()[bag] = static_cast<std::uint32_t>(bag * o_.hot);
    }
    request.done = [this, number](const Result<PooledValues>& pooled) { Answered(number, pooled); };
    return request;
  }

  void Send() {
    LookupRequest request;
    {
      const std::scoped_lock lock(mutex_);
      if (to_send_ == 0) return;
      request = std::move(requests_[--to_send_]);
    }
    engine_.Submit(std::move(request));
  }

  void Answered(std::size_t number, const Result<PooledValues>& pooled) {
    if (pooled.ok()) Send();
    const std::scoped_lock lock(mutex_);
    if (!pooled.ok()) {
      failure_ = pooled.status();
      to_answer_ -= std::exchange(to_send_, 0);
    } else if (number < kept_.size()) {
      kept_[number] = *pooled;
    } else if (bags() > 0) {
      right_ = right_ && IsRight(*pooled, number, 0) && IsRight(*pooled, number, bags() - 1);
    }
    if (--to_answer_ == 0) changed_.notify_all();
  }

  // Returns whether a bag equals the first answer, up to the order in which the ranks' sums were added.
  bool IsRight(const PooledValues& pooled, std::size_t request, std::size_t bag) const {
    if (pooled.size != sums_.size) return false;
    const auto values = pooled.floats().subspan(bag * o_.dim, o_.dim);
    const auto sums = sums_.floats().subspan(BagOfAll(request, bag) * o_.dim, o_.dim);
    return std::ranges::equal(values, sums, IsClose);
  }
  static bool IsClose(float value, double wanted) {
    return std::abs(static_cast<double>(value) - wanted) <= 1e-5 * (1 + std::abs(wanted));
  }

  void CheckSums() const {
    constexpr std::size_t kChecked = 4096;
    const InitializerOptions initial_values = TableOf(o_).initializer;
    Must(sums_.size == bags() * o_.dim, "wrong result: not as many values as were asked for");
    for (std::size_t bag = 0; bag < bags(); bag += std::max<std::size_t>(1, bags() / kChecked)) {
      for (std::uint32_t j = 0; j < o_.dim; ++j) {
        double sum = 0;
        for (const std::uint32_t row : rows_.subspan(bag * o_.hot, o_.hot)) {
          sum += static_cast<double>(body::InitialValue(initial_values, KeyOf(row), j));
        }
        Must(IsClose(sums_.floats()[bag * o_.dim + j], sum), kWrong);
      }
    }
  }

  Engine& engine_;
  Meeting& meeting_;
  const RoundsOptions& o_;
  const TableId table_;
  const std::span<const std::uint32_t> rows_;
  std::vector<LookupRequest> requests_;
  PooledValues sums_;  // of all bags, in order

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t to_send_ = 0;
  std::size_t to_answer_ = 0;
  std::vector<PooledValues> kept_;  // the answers to the first requests, for a check
  Status failure_;
  bool right_ = true;
};

TableId MakeTable(Engine& engine, const TableOptions& options) {
  std::promise<Result<CreatedTable>> made;
  engine.Submit(
      CreateTableRequest{options, [&](const Result<CreatedTable>& table) { made.set_value(table); }});
  return Must(made.get_future().get(), "no table").id;
}

struct Contestants {
  std::vector<double> one;      // seconds a lookup, with one in flight
  std::vector<double> several;  // seconds a lookup, with several in flight
};

// REQUIRES: only the engine's thread uses the collective meanwhile.
Contestants Measure(Engine& engine, const Collective& collective, const RoundsOptions& o,
                    std::span<const std::uint32_t> my_rows) {
  const TableId table = MakeTable(engine, TableOf(o));
  Meeting meeting(engine, table, collective);
  Asker asker(engine, meeting, o, table, my_rows);
  asker.Check();
  Contestants times;
  for (int repeat = -1; repeat < o.repeats; ++repeat) {
    const auto seconds = [&](std::uint32_t in_flight) {
      asker.Prepare(LookupMode::kEval, o.lookups);
      return asker.Run(in_flight) / o.lookups;
    };
    const double one = seconds(1);
    const double several = seconds(o.in_flight);
    if (repeat < 0) continue;  // warms up
    times.one.push_back(one);
    times.several.push_back(several);
  }
  meeting.Come();  // a rank must not stop its engine before all have finished
  return times;
}

// Collective. Returns the bytes a second from the device's memory to the host's, the best of several runs, or
// 0 if the memories are the same. All ranks copy at once, because they may share the link.
double DownloadBytesPerSecond(Device& device, Collective& collective) {
  if (device.SharesHostMemory()) return 0;
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  void* const on_device = device.Allocate(kBytes);
  const HostMemory host = device.AllocateHost(kBytes);
  double fastest = 0;
  for (int i = 0; i < 5; ++i) {
    const auto download = [&] { device.Download(host.get(), on_device, kBytes); };
    fastest = std::max(fastest, kBytes / SecondsOfAll(collective, download));
  }
  device.Free(on_device);
  return fastest;
}

Report RunRounds(const RoundsOptions& o, Collective& collective) {
  Must(o.keys() < 4294967295.0, "batch x slots x hot must be below 2^32");
  const Place place = MakePlace(o, collective);
  const auto ranks = static_cast<std::size_t>(collective.size());
  const auto me = static_cast<std::size_t>(Value(collective.rank()));
  const std::vector<std::uint32_t> rows = DrawRows(o.keys(), o.rows, o.alpha, o.seed);
  const std::size_t a_sample = std::size_t{o.slots} * o.hot;
  const std::size_t first = o.batch * me / ranks * a_sample;
  const std::size_t last = o.batch * (me + 1) / ranks * a_sample;
  const double download = DownloadBytesPerSecond(*place.device, collective);

  const Exchanges exchanges = Must(Exchanges::Make(*place.device, collective), "no exchange");
  EngineOptions limits;
  limits.distribution.costs = MeasureDistribution(*place.device, collective, exchanges.bags());
  // A round takes one lookup; otherwise the engine would combine the lookups that wait.
  limits.max_round_bytes = static_cast<std::uint64_t>(
      1.25 * (o.keys() * sizeof(Key) + std::size_t{o.bags()} * (o.dim + 1) * sizeof(float)));
  limits.max_queue_bytes = std::uint64_t{16} << 30;
  Engine engine(*place.device, collective, exchanges, kBenchSecret, limits);
  Contestants times;
  std::exception_ptr failure;
  std::thread asking([&] {
    try {
      times = Measure(engine, collective, o, std::span(rows).subspan(first, last - first));
    } catch (...) {
      failure = std::current_exception();
    }
    engine.RequestStop();
  });
  try {
    engine.Run();
  } catch (const std::exception& error) {  // else the caller would wait for ever
    std::fprintf(stderr, "slotwise-bench: %s\n", error.what());
    if (LaunchedByMpi()) MpiSession::AbortAllRanks(1);
    std::_Exit(1);
  }
  asking.join();
  if (failure) std::rethrow_exception(failure);
  for (std::vector<double>* seconds : {&times.one, &times.several}) {
    for (double& s : *seconds) s = MaxOverRanks(collective, s);
  }

  Report report;
  report.benchmark = "rounds";
  report.title = "rounds of lookups: " + TitleOf(o) + ", host to host";
  report.options = ToJson(o);
  report.options.update({{"in_flight", o.in_flight}, {"lookups", o.lookups}});
  report.device = place.device->Name();
  report.ranks = collective.size();
  report.threads = place.threads;
  report.copy_bytes_per_second = place.memory->CopyBytesPerSecond();
  report.random_lines_per_second = place.memory->LinesPerSecond();
  const auto keys = static_cast<double>(o.keys());
  const double down = static_cast<double>(last - first) / o.hot * o.dim * sizeof(float);
  const double floor =
      MaxOverRanks(collective, download > 0 ? down / download : 2 * down / report.copy_bytes_per_second);
  report.lines.push_back({"lookup, 1 in flight", keys, times.one, down, floor, {}});
  report.lines.push_back(
      {"lookup, " + std::to_string(o.in_flight) + " in flight", keys, times.several, down, floor, {}});
  report.notes.push_back(download > 0
                             ? "The floor is a rank's pooled rows on their way to the host, at " +
                                   std::to_string(download * 1e-9).substr(0, 5) + " GB/s, all ranks' at once."
                             : "The floor is a rank's pooled rows, read and written once.");
  if (report.ranks > 1) report.notes.push_back("Ranks exchange batches by " + exchanges.bags().Name() + ".");
  return report;
}

}  // namespace

Subcommand AddRounds(CLI::App& parent) {
  auto options = std::make_shared<RoundsOptions>();
  RoundsOptions& o = *options;
  CLI::App* app = parent.add_subcommand(
      "rounds", "lookups through the engine, from host memory to host memory: one in flight, and several");
  AddBatchOptions(*app, o, "rows that keys are drawn of", "samples a lookup, over all ranks");
  app->add_option("--in-flight", o.in_flight, "lookups at any time")->check(CLI::Range(1, 1024));
  app->add_option("--lookups", o.lookups, "lookups a timed run")->check(CLI::Range(1, 100'000));
  return {app, options, [options](Collective& collective) { return RunRounds(*options, collective); }};
}

}  // namespace slotwise::bench
