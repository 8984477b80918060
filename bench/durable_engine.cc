#include "bench/durable_engine.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <stdexcept>

#include "bench/timing.h"
#include "bench/workload.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/read_rows.h"
#include "server/engine/operations/summarize.h"

namespace slotwise::bench {
namespace {

// Gives each start its own session, as for a trainer that restarts.
std::atomic<std::uint64_t> starts = 0;

// The most blocks of rows that CheckRows reads. In a larger table the blocks are evenly spaced.
constexpr std::uint32_t kMostBlocks = 64;

TableOptions TableOf(const TrainerOptions& o) {
  TableOptions table;
  table.name = TableName("bench");
  table.dim = o.dim;
  table.slots = o.slots;
  table.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
  table.initializer = {.kind = InitializerKind::kConstant};
  table.initial_rows = o.rows;
  return table;
}

// Makes a batch of one key a bag from rows [first, first + n) of the table. Repeats the last row to fill the
// last sample.
BatchPart PartOfRows(std::uint32_t first, std::uint32_t n, std::uint32_t slots) {
  BatchPart part;
  part.samples = (n + slots - 1) / slots;
  const std::size_t bags = std::size_t{part.samples} * slots;
  part.keys = BatchArray<Key>(bags);
  part.offsets = BatchArray<std::uint32_t>(bags + 1);
  for (std::size_t bag = 0; bag < bags; ++bag)
    part.keys.data()[bag] = KeyOf(first + std::min<std::size_t>(bag, n - 1));
  for (std::size_t bag = 0; bag <= bags; ++bag) part.offsets.data()[bag] = static_cast<std::uint32_t>(bag);
  return part;
}

}  // namespace

void AddTrainerOptions(CLI::App& app, TrainerOptions& options) {
  AddBatchOptions(app, options, "rows of the table", "samples a step");
  app.add_option("--data", options.data, "the folder whose disk is used; by default that of temporary files")
      ->check(CLI::ExistingDirectory);
}

DataFolder::DataFolder(const std::string& parent)
    : path_((parent.empty() ? std::filesystem::temp_directory_path().string() : parent) +
            "/slotwise-bench-XXXXXX") {
  Must(::mkdtemp(path_.data()) != nullptr, "cannot make the folder " + path_);
}

DataFolder::~DataFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Steps::Steps(const TrainerOptions& options)
    : o_(options),
      offsets_(std::make_shared_for_overwrite<std::uint32_t[]>(options.keys() / options.hot + 1)),
      gradients_(std::make_shared_for_overwrite<float[]>(options.keys() / options.hot * options.dim)) {
  const std::size_t bags = o_.keys() / o_.hot;
  std::ranges::copy(EvenOffsets(bags, o_.hot), offsets_.get());
  std::fill_n(gradients_.get(), bags * o_.dim, -1.0F);
  for (std::size_t b = 0; b < kBatches; ++b) {
    rows_.push_back(DrawRows(o_.keys(), o_.rows, o_.alpha, o_.seed + b));
    keys_.push_back(std::make_shared_for_overwrite<Key[]>(o_.keys()));
    std::ranges::copy(KeysOf(rows_.back()), keys_.back().get());
  }
}

BatchPart Steps::Batch(std::uint64_t number, bool with_gradients) const {
  const std::size_t bags = o_.keys() / o_.hot;
  BatchPart part;
  part.samples = o_.batch;
  part.keys = BatchArray<Key>(keys_[number % kBatches], o_.keys());
  part.offsets = BatchArray<std::uint32_t>(offsets_, bags + 1);
  if (with_gradients) part.values = BatchArray<float>(gradients_, bags * o_.dim);
  return part;
}

std::uint64_t Steps::bytes() const { return Batch(0, true).bytes(); }

std::vector<float> Steps::Occurrences(std::uint64_t end) const {
  std::vector<float> counts(o_.rows);
  for (std::size_t b = 0; b < kBatches; ++b) {
    const std::uint64_t whole = end / kBatches + (b < end % kBatches ? 1 : 0);
    const auto times = static_cast<float>(whole);
    for (const std::uint32_t row : rows_[b]) counts[row] += times;
  }
  return counts;
}

DurableEngine::DurableEngine(const TrainerOptions& options, const Steps& steps,
                             const DurabilityOptions& durability)
    : o_(options),
      steps_(steps),
      place_(MakePlace(options, *collective_)),
      exchanges_(Exchanges::MakeSolo(*place_.device)),
      session_(++starts) {
  spdlog::set_level(spdlog::level::warn);  // usual messages are no part of a report
  EngineOptions limits;
  limits.instance = session_;
  limits.max_queue_bytes = std::uint64_t{4} << 30;
  engine_ = std::make_unique<Engine>(*place_.device, *collective_, exchanges_, kBenchSecret, limits);
  DurabilityOptions watched = durability;
  watched.on_failure = [](const std::string& why) {  // no request would be answered any more
    std::fprintf(stderr, "slotwise-bench: the journal failed: %s\n", why.c_str());
    std::_Exit(1);
  };
  recovery_seconds_ = SecondsOf([&] { Must(engine_->Recover(watched), "recovery"); });
  run_ = std::thread([this] {
    try {
      engine_->Run();
    } catch (const std::exception& error) {  // else a caller would wait for ever
      std::fprintf(stderr, "slotwise-bench: %s\n", error.what());
      std::_Exit(1);
    }
  });
  table_ = Must(Ask<Result<CreatedTable>>(
                    [&](auto done) { return CreateTableRequest{.options = TableOf(o_), .done = done}; }),
                "no table")
               .id;
}

DurableEngine::~DurableEngine() {
  engine_->RequestStop();
  run_.join();
}

PushRequest DurableEngine::Push(BatchPart batch, std::function<void(Result<AppliedStep>)> done) {
  return {.table = table_,
          .step = {.session = session_, .number = next_step_++},
          .batch = std::move(batch),
          .done = std::move(done)};
}

void DurableEngine::Fill() {
  constexpr std::uint32_t kAtOnce = 1 << 16;
  for (std::uint32_t first = 0; first < o_.rows; first += kAtOnce) {
    Must(Ask<Result<PooledValues>>([&](auto done) {
           return LookupRequest{.table = table_,
                                .mode = LookupMode::kTrain,
                                .batch = PartOfRows(first, std::min(kAtOnce, o_.rows - first), o_.slots),
                                .done = done};
         }),
         "rows could not be made");
  }
}

void DurableEngine::TrainingStep() {
  const std::uint64_t number = next_step_;
  Must(Ask<Result<PooledValues>>([&](auto done) {
         return LookupRequest{
             .table = table_, .mode = LookupMode::kTrain, .batch = steps_.Batch(number, false), .done = done};
       }),
       "lookup");
  Must(Ask<Result<AppliedStep>>([&](auto done) { return Push(steps_.Batch(number, true), done); }), "push");
}

std::uint64_t DurableEngine::PushFor(double seconds, std::size_t in_flight) {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t under_way = 0;
    std::vector<std::uint64_t> refused;  // steps to send again
    std::uint64_t acknowledged = 0;
    Status failure;
    bool over = false;
  } state;
  std::function<void(std::uint64_t)> send;
  send = [&](std::uint64_t number) {
    engine_->Submit(PushRequest{.table = table_,
                                .step = {.session = session_, .number = number},
                                .batch = steps_.Batch(number, true),
                                .done = [&, number](const Result<AppliedStep>& applied) {
                                  std::optional<std::uint64_t> next;
                                  {
                                    const std::scoped_lock lock(state.mutex);
                                    if (applied.ok()) {
                                      ++state.acknowledged;
                                      if (!state.over && state.failure.ok()) next = next_step_++;
                                    } else if (applied.status().code() == StatusCode::kUnavailable) {
                                      state.refused.push_back(number);
                                    } else {
                                      state.failure = applied.status();
                                    }
                                    if (!next) {
                                      --state.under_way;
                                      state.changed.notify_all();
                                    }
                                  }
                                  if (next) send(*next);
                                }});
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::vector<std::uint64_t> first;
  for (std::size_t i = 0; i < in_flight; ++i) first.push_back(next_step_++);
  state.under_way = first.size();
  for (const std::uint64_t number : first) send(number);
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait_until(lock, end, [&] { return state.under_way == 0 || !state.refused.empty(); });
    state.over = std::chrono::steady_clock::now() >= end;
    if (!state.failure.ok() || (state.under_way == 0 && state.refused.empty())) break;
    if (state.refused.empty()) {
      state.changed.wait(lock, [&] { return state.under_way == 0 || !state.refused.empty(); });
      continue;
    }
    // A client waits a little and sends the same step again.
    const std::vector<std::uint64_t> again = std::exchange(state.refused, {});
    state.under_way += again.size();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const std::uint64_t number : again) send(number);
    lock.lock();
  }
  state.changed.wait(lock, [&] { return state.under_way == 0; });
  Must(state.failure, "push");
  return state.acknowledged;
}

void DurableEngine::Touch(std::uint32_t rows) {
  BatchPart part = PartOfRows(0, rows, o_.slots);
  // Only the first occurrence of the last row gets a gradient; the repeated bags get 0.
  part.values = BatchArray<float>(part.keys.size() * o_.dim);
  std::fill_n(part.values.data(), std::size_t{rows} * o_.dim, -1.0F);
  std::fill(part.values.data() + std::size_t{rows} * o_.dim, part.values.data() + part.values.size(), 0.0F);
  Must(Ask<Result<AppliedStep>>([&](auto done) {
         return PushRequest{.table = table_,
                            .step = {.session = session_ | std::uint64_t{1} << 32, .number = touches_++},
                            .batch = std::move(part),
                            .done = done};
       }),
       "push");
}

DurableEngine::Saved DurableEngine::Save(bool delta, DataType value_type) {
  Saved saved;
  saved.seconds = SecondsOf([&] {
    saved.checkpoint =
        Must(Ask<Result<SavedCheckpoint>>([&](auto done) {
               return SaveCheckpointRequest{.delta = delta, .value_type = value_type, .done = done};
             }),
             "checkpoint");
  });
  return saved;
}

DigestSums DurableEngine::Digest() {
  return Must(Ask<Result<TableSummary>>([&](auto done) {
                return SummarizeRequest{.table = table_, .with_digest = true, .done = done};
              }),
              "digest")
      .digest;
}

void DurableEngine::CheckRows(std::uint32_t touched_rows, std::uint32_t touched) {
  std::vector<float> wanted = steps_.Occurrences(next_step_);
  for (std::uint32_t row = 0; row < touched_rows; ++row) wanted[row] += static_cast<float>(touched);
  constexpr std::uint32_t kAtOnce = 1 << 16;
  const std::uint32_t every = 1 + o_.rows / kAtOnce / kMostBlocks;
  for (std::uint64_t block = 0; block * kAtOnce < o_.rows; block += every) {
    const auto first = static_cast<std::uint32_t>(block * kAtOnce);
    const std::uint32_t n = std::min(kAtOnce, o_.rows - first);
    const RowRecords read =
        Must(Ask<Result<RowRecords>>([&](auto done) {
               return ReadRowsRequest{.table = table_, .keys = KeysOfRange(first, n), .done = done};
             }),
             "rows could not be read");
    std::size_t at = 0;  // index in `read`: rows that no step has touched may be absent
    for (std::uint32_t row = first; row < first + n; ++row) {
      const bool present = at < read.keys.size() && read.keys[at] == KeyOf(row);
      Must(present || wanted[row] == 0, "wrong result: a row is lost");
      for (std::uint32_t j = 0; present && j < o_.dim; ++j) {
        Must(read.records[at * o_.dim + j] == wanted[row],
             "wrong result: a row is not the number of its key's occurrences");
      }
      at += present ? 1 : 0;
    }
  }
}

}  // namespace slotwise::bench
