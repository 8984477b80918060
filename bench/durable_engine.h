// DurableEngine: an engine of one rank that keeps its state in a folder, and a trainer's requests to the
// engine.
//
// Steps push gradients of -1 to a table of SGD with learning rate 1 whose rows begin at 0. So a row is
// exactly the number of times that its key occurred in all steps, and shows a lost or doubled step.
// Thread-safety: one thread at a time. Throws std::runtime_error, std::bad_alloc.
#ifndef SLOTWISE_BENCH_DURABLE_ENGINE_H_
#define SLOTWISE_BENCH_DURABLE_ENGINE_H_

#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/common_options.h"
#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/engine.h"
#include "server/engine/operations/checkpoint_requests.h"
#include "server/engine/operations/push.h"

namespace slotwise::bench {

// Options of the trainer's table and steps.
struct TrainerOptions : BatchOptions {
  TrainerOptions() {
    rows = 100'000;
    dim = 16;
    hot = 1;
    batch = 64;
  }

  std::string data;  // the parent of the data folder; empty: the system's temporary folder
};

void AddTrainerOptions(CLI::App& app, TrainerOptions& options);

// Makes a folder in the one that the user named, and removes it with its contents at the end.
class DataFolder {
 public:
  explicit DataFolder(const std::string& parent);
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Batches that are made once and sent many times, by handles to the same memory.
class Steps {
 public:
  static constexpr std::size_t kBatches = 16;

  explicit Steps(const TrainerOptions& options);

  BatchPart Batch(std::uint64_t number, bool with_gradients) const;
  std::uint64_t bytes() const;  // of a push's arrays
  // Returns the number of times that each row's key occurs in steps [0, end).
  std::vector<float> Occurrences(std::uint64_t end) const;

 private:
  const TrainerOptions& o_;
  std::vector<std::vector<std::uint32_t>> rows_;
  std::vector<std::shared_ptr<Key[]>> keys_;
  std::shared_ptr<std::uint32_t[]> offsets_;
  std::shared_ptr<float[]> gradients_;
};

class DurableEngine {
 public:
  // Recovers the folder's state, and makes the table if it is missing. REQUIRES: `steps` outlives this.
  DurableEngine(const TrainerOptions& options, const Steps& steps, const DurabilityOptions& durability);
  // Finishes all requests, and the verification of a checkpoint that is in progress.
  ~DurableEngine();
  DurableEngine(const DurableEngine&) = delete;
  DurableEngine& operator=(const DurableEngine&) = delete;

  Engine& engine() { return *engine_; }
  double recovery_seconds() const { return recovery_seconds_; }

  // Sends a request and waits for its answer. `of` makes the request from its callback `done`.
  template <class Answer, class MakeRequest>
  Answer Ask(const MakeRequest& of) {
    std::promise<Answer> answer;
    engine_->Submit(of([&](Answer a) { answer.set_value(std::move(a)); }));
    return answer.get_future().get();
  }

  // Gives every row of the table its initial values.
  void Fill();
  // Looks up a batch for training, and then pushes its gradients.
  void TrainingStep();
  // Pushes steps for `seconds`, `in_flight` at any time. Returns the number of acknowledged steps.
  std::uint64_t PushFor(double seconds, std::size_t in_flight);
  // Adds 1 to the first `rows` rows.
  void Touch(std::uint32_t rows);

  // Saves a checkpoint. The engine begins as soon as the previous checkpoint is verified.
  struct Saved {
    SavedCheckpoint checkpoint;
    double seconds = 0;
  };
  Saved Save(bool delta, DataType value_type = DataType::kFloat32);

  DigestSums Digest();
  std::uint64_t steps() const { return next_step_; }
  // Checks that every row is the result of the steps and of `touched` calls of Touch(touched_rows). In a
  // table of more than 4 M rows, it checks evenly spaced blocks only.
  void CheckRows(std::uint32_t touched_rows = 0, std::uint32_t touched = 0);
  // Continues the steps' numbers after an earlier engine's steps(). REQUIRES: nothing was pushed.
  void GoOnBehind(std::uint64_t steps) { next_step_ = steps; }

 private:
  PushRequest Push(BatchPart batch, std::function<void(Result<AppliedStep>)> done);

  const TrainerOptions& o_;
  const Steps& steps_;
  std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  Place place_;
  Exchanges exchanges_;
  std::unique_ptr<Engine> engine_;
  double recovery_seconds_ = 0;
  std::thread run_;
  TableId table_{0};
  std::uint64_t next_step_ = 0;
  std::uint64_t session_ = 0;
  std::uint64_t touches_ = 0;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_DURABLE_ENGINE_H_
