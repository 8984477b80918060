// Defines slotwise_call and the other types behind the handles of slotwise.h.
#ifndef SLOTWISE_CLIENT_C_CALL_H_
#define SLOTWISE_CLIENT_C_CALL_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "slotwise/client.h"
#include "slotwise/slotwise.h"
#include "wire/status_code.h"

namespace slotwise::c {

// Returns the traceparent of the calls that this thread starts.
const std::string& Traceparent();

}  // namespace slotwise::c

struct slotwise_client {
  slotwise::Client client;
};

// A call. Its handle and the threads that work on it share its state.
struct slotwise_call {
 public:
  // The result of a call that succeeded.
  struct Answer {
    std::string json = {};
    std::vector<std::uint64_t> numbers = {};
    std::unique_ptr<slotwise_client> client = nullptr;
    std::vector<slotwise::GpuRows> gpu_rows = {};
  };
  using Outcome = slotwise::Result<Answer>;
  using End = std::function<void(Outcome)>;

  // Starts a call. `begin` gets the call's options, and a function to call once with the outcome. Returns
  // null if there is no memory.
  using Begin = std::function<void(const slotwise::CallOptions&, const End&)>;
  // `soon`: the call ends within about a millisecond, so a thread that waits for it stays awake that long.
  // `begin` sets `push`, and the call keeps it.
  using Push = std::shared_ptr<slotwise::GpuPushUnderWay>;
  static slotwise_call* Start(const slotwise_call_options* options, const Begin& begin, bool soon = false,
                              const Push* push = nullptr);
  // Starts a call that runs `work` in a thread of its own.
  using Work = std::function<Outcome(const slotwise::CallOptions&)>;
  static slotwise_call* StartThread(const slotwise_call_options* options, const Work& work);

  ~slotwise_call();
  slotwise_call(const slotwise_call&) = delete;
  slotwise_call& operator=(const slotwise_call&) = delete;

  std::int32_t Wait(std::int64_t most_ms) const;
  void Cancel() { state_->stop.request_stop(); }

  // REQUIRES: the call has ended.
  const std::string& message() const { return state_->message; }
  std::chrono::milliseconds retry_after() const { return state_->retry_after; }
  slotwise::Reason reason() const { return state_->reason; }
  Answer& answer() const { return state_->answer; }

  // Returns the push if it goes by a GPU's memory; else null.
  Push push() const {
    const std::lock_guard lock(state_->mutex);
    return state_->push;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex. The members after `push` are written before `code` changes, and not afterwards.
    std::int32_t code = SLOTWISE_RUNNING;
    std::thread::id teller;  // the thread that runs the callback, while it does
    bool told = false;       // the callback has run
    Push push;

    std::string message;
    std::chrono::milliseconds retry_after{0};
    slotwise::Reason reason = slotwise::Reason::kNone;
    Answer answer;
    std::stop_source stop;
    std::atomic<bool> ended = false;  // `code` is not SLOTWISE_RUNNING any more
    bool soon = false;
  };

  slotwise_call() = default;
  static void Finish(const std::shared_ptr<State>& state, const slotwise_call_options& options,
                     slotwise_call* handle, Outcome outcome);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;  // set by StartThread
};

namespace slotwise::c {

// Returns a text that the caller gave; empty if it is null.
inline std::string Text(const char* text) { return text == nullptr ? std::string() : std::string(text); }

// The codes of slotwise.h are gRPC's numbers.
constexpr std::int32_t CodeOf(StatusCode code) { return static_cast<std::int32_t>(WireCode(code)); }
static_assert(CodeOf(StatusCode::kOk) == SLOTWISE_OK &&
              CodeOf(StatusCode::kCancelled) == SLOTWISE_CANCELLED &&
              CodeOf(StatusCode::kDeadlineExceeded) == SLOTWISE_DEADLINE_EXCEEDED &&
              CodeOf(StatusCode::kInternal) == SLOTWISE_INTERNAL &&
              CodeOf(StatusCode::kUnauthenticated) == SLOTWISE_UNAUTHENTICATED);

inline Result<LookupMode> ModeOf(std::int32_t mode) {
  if (mode == SLOTWISE_TRAIN) return LookupMode::kTrain;
  if (mode == SLOTWISE_EVAL) return LookupMode::kEval;
  return InvalidArgument("mode is " + std::to_string(mode) + ": must be SLOTWISE_TRAIN or SLOTWISE_EVAL");
}

inline std::optional<Step> StepOf(const slotwise_step* step) {
  if (step == nullptr) return std::nullopt;
  return Step{.session = step->session,
              .number = step->number,
              .trainer = step->trainer,
              .trainers = step->trainers,
              .parts = step->parts,
              .epoch = step->epoch};
}

// Returns a wait that is short enough to be added to the clock.
inline std::chrono::milliseconds Bounded(std::int64_t most_ms) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 10);
  return std::min(kLongest, std::chrono::milliseconds(most_ms));
}

// Returns what `make` returns, or null if it throws.
template <class Make>
auto OrNull(const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace slotwise::c

#endif  // SLOTWISE_CLIENT_C_CALL_H_
