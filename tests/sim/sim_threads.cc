#include "tests/sim/sim_threads.h"

#include <algorithm>
#include <utility>

namespace slotwise::sim {
namespace {

// A thread without work waits in pieces, so that it does not look stuck.
constexpr Time kLongWait = 10'000'000;

Status Dead() { return Unavailable("the simulated process is dead"); }

}  // namespace

class SimThreads::Joined final : public Thread {
 public:
  Joined(SimThreads& threads, Helper& helper) : threads_(threads), helper_(helper) {}
  ~Joined() override {
    try {
      threads_.scheduler_.Await(threads_.engine_, "the end of a thread", [this] { return !helper_.body; });
    } catch (const RankEnded&) {  // the thread was killed too, and has ended before
    }
  }

 private:
  SimThreads& threads_;
  Helper& helper_;
};

SimThreads::SimThreads(Scheduler& scheduler, int engine, const std::vector<int>& helpers,
                       std::function<void()> poke)
    : scheduler_(scheduler), engine_(engine), poke_(std::move(poke)) {
  for (const int fiber : helpers)
    helpers_.push_back(std::make_unique<Helper>(Helper{.fiber = fiber, .body = {}}));
  scheduler_.UnwindOnce(engine, [this] {
    return std::ranges::all_of(helpers_,
                               [this](const auto& helper) { return scheduler_.ended(helper->fiber); });
  });
}

SimThreads::~SimThreads() = default;

std::unique_ptr<Threads::Thread> SimThreads::Begin(std::function<void()> body) {
  const auto free = std::ranges::find_if(helpers_, [](const auto& helper) { return !helper->body; });
  if (free == helpers_.end()) throw std::runtime_error("the simulation has too few fibers for threads");
  (*free)->body = std::move(body);
  return std::make_unique<Joined>(*this, **free);
}

Time SimThreads::Deadline(int fiber) const { return IsHelper(fiber) ? scheduler_.now() + kLongWait : kNever; }

void SimThreads::Wait(std::condition_variable& /*changed*/, std::unique_lock<std::mutex>& lock,
                      const std::function<bool()>& holds) {
  WaitUntil(lock, holds, kNever);
}

std::optional<std::chrono::milliseconds> SimThreads::WaitFor(std::condition_variable& /*changed*/,
                                                             std::unique_lock<std::mutex>& lock,
                                                             const std::function<bool()>& holds,
                                                             std::chrono::milliseconds longest) {
  const Time end = scheduler_.now() + static_cast<Time>(std::chrono::microseconds(longest).count());
  if (!WaitUntil(lock, holds, end)) return std::nullopt;
  const std::chrono::microseconds left(end - std::min(end, scheduler_.now()));
  return std::chrono::duration_cast<std::chrono::milliseconds>(left);
}

bool SimThreads::WaitUntil(std::unique_lock<std::mutex>& lock, const std::function<bool()>& holds, Time end) {
  const int fiber = scheduler_.running();
  poke_();
  while (!holds()) {
    if (scheduler_.now() >= end) return false;
    lock.unlock();
    scheduler_.Await(
        fiber, "a condition",
        [&] {
          lock.lock();
          const bool held = holds();
          lock.unlock();
          return held;
        },
        std::min(end, Deadline(fiber)));
    lock.lock();
  }
  return true;
}

void SimThreads::RunHelper(int fiber) {
  Helper& mine = **std::ranges::find_if(helpers_, [&](const auto& helper) { return helper->fiber == fiber; });
  while (!scheduler_.ended(engine_)) {
    scheduler_.Await(
        fiber, "a thread's begin", [&] { return mine.body || scheduler_.ended(engine_); }, Deadline(fiber));
    if (!mine.body) continue;
    mine.body();
    mine.body = {};
  }
}

void SimThreads::Step(int fiber, const char* where) {
  poke_();
  scheduler_.Yield(fiber, where);
}

namespace {

class SteppedFile final : public WritableFile {
 public:
  SteppedFile(std::unique_ptr<WritableFile> file, std::function<bool()> step)
      : file_(std::move(file)), step_(std::move(step)) {}
  Status WriteAt(std::uint64_t offset, std::span<const std::span<const std::byte>> pieces) override {
    return step_() ? file_->WriteAt(offset, pieces) : Dead();
  }
  Status Reserve(std::uint64_t size) override { return step_() ? file_->Reserve(size) : Dead(); }
  Status Truncate(std::uint64_t size) override { return step_() ? file_->Truncate(size) : Dead(); }
  Status Sync() override { return step_() ? file_->Sync() : Dead(); }

 private:
  const std::unique_ptr<WritableFile> file_;
  const std::function<bool()> step_;
};

class SteppedFiles final : public FileSystem {
 public:
  SteppedFiles(FileSystem& files, Scheduler& scheduler, SimThreads& threads)
      : files_(files), step_([&scheduler, &threads] {
          const int fiber = scheduler.running();
          if (scheduler.killed(fiber)) return false;
          threads.Step(fiber, "a file's operation");
          return true;
        }) {}

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return step_() ? Stepped(files_.Create(path)) : Dead();
  }
  Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) override {
    return Stepped(files_.OpenToWrite(path));
  }
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override { return files_.Open(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return step_() ? files_.Rename(from, to) : Dead();
  }
  Status Remove(const std::string& path) override { return step_() ? files_.Remove(path) : Dead(); }
  Status RemoveFolder(const std::string& path) override {
    return step_() ? files_.RemoveFolder(path) : Dead();
  }
  Status MakeFolder(const std::string& path) override { return step_() ? files_.MakeFolder(path) : Dead(); }
  Result<std::vector<std::string>> List(const std::string& path) override { return files_.List(path); }
  Status SyncFolder(const std::string& path) override { return step_() ? files_.SyncFolder(path) : Dead(); }

 private:
  Result<std::unique_ptr<WritableFile>> Stepped(Result<std::unique_ptr<WritableFile>> file) {
    if (!file.ok()) return file;
    return std::unique_ptr<WritableFile>(std::make_unique<SteppedFile>(std::move(*file), step_));
  }

  FileSystem& files_;
  const std::function<bool()> step_;
};

}  // namespace

std::unique_ptr<FileSystem> MakeSteppedFiles(FileSystem& files, Scheduler& scheduler, SimThreads& threads) {
  return std::make_unique<SteppedFiles>(files, scheduler, threads);
}

}  // namespace slotwise::sim
