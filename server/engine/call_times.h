// CallTimes: records when a lookup or push reached each stage, and its sizes. It is made with the call's
// Caller. Code that works on the call notes the times, and the transport counts them once the call is over
// (intake/call_stats.h).
//
// Thread-safety: any thread; a reader sees the notes that precede it in its call. Times are the system's,
// even where a simulator brings another clock, because no decision depends on them.
#ifndef SLOTWISE_SERVER_ENGINE_CALL_TIMES_H_
#define SLOTWISE_SERVER_ENGINE_CALL_TIMES_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "slotwise/server_stats.h"
#include "slotwise/status.h"

namespace slotwise {

enum class CallKind : std::uint8_t { kOther, kLookup, kPush };

// A call that is over.
struct EndedCall {
  CallKind kind = CallKind::kOther;
  StatusCode code = StatusCode::kOk;
  bool busy = false;  // refused, with a time to try again
  std::uint64_t samples = 0;
  std::uint64_t keys = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::chrono::nanoseconds latency{0};
  std::array<std::optional<std::chrono::nanoseconds>, kCallStages> stages =
      {};  // durations of the call's stages
};

class CallTimes {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;
  using Nanoseconds = std::chrono::nanoseconds;

  // Made when the call's bytes have arrived.
  explicit CallTimes(CallKind kind, TimePoint now = Clock::now()) : kind_(kind), begin_(now) {}

  void NoteBytesIn(std::uint64_t bytes) { Set(bytes_in_, bytes); }
  void NoteBytesOut(std::uint64_t bytes) { Set(bytes_out_, bytes); }
  // The requests are about to be submitted.
  void NoteSubmitted(std::uint64_t samples, std::uint64_t keys, TimePoint now = Clock::now()) {
    Set(samples_, samples);
    Set(keys_, keys);
    Set(submitted_, Ns(now));
  }
  // A round takes a request of the call: only the first counts. `waited`, here and below, is the time that
  // the rank has waited in collectives since it started.
  void NoteTaken(TimePoint now, Nanoseconds waited) {
    if (Get(taken_) != kNever) return;
    Set(waited_before_, waited.count());
    Set(taken_, Ns(now));
  }
  // The round's work is done and waits for the journal: only the last counts.
  void NoteApplied(TimePoint now, Nanoseconds waited) {
    Set(waited_after_, waited.count());
    Set(applied_, Ns(now));
  }
  // All requests are answered.
  void NoteAnswered(Nanoseconds waited, TimePoint now = Clock::now()) {
    if (Get(applied_) == kNever) Set(waited_after_, waited.count());
    Set(answered_, Ns(now));
  }
  // The reply is made.
  void NoteReply(const Status& outcome, TimePoint now = Clock::now()) {
    Set(code_, outcome.code());
    Set(busy_, outcome.retry_after().count() > 0);
    Set(replied_, Ns(now));
  }

  CallKind kind() const { return kind_; }
  TimePoint begin() const { return begin_; }

  // Called when the operating system has the reply. Only a call that was answered OK has stages.
  EndedCall End(TimePoint now = Clock::now()) const {
    EndedCall call{.kind = kind_,
                   .code = Get(code_),
                   .busy = Get(busy_),
                   .samples = Get(samples_),
                   .keys = Get(keys_),
                   .bytes_in = Get(bytes_in_),
                   .bytes_out = Get(bytes_out_),
                   .latency = now - begin_};
    if (call.code != StatusCode::kOk) return call;
    const auto stage = [&](CallStage which, std::int64_t ns) {
      call.stages[static_cast<std::size_t>(which)] = Nanoseconds(std::max<std::int64_t>(ns, 0));
    };
    // A call without requests goes from one end to the other, and a step that was applied before needs no
    // round.
    const std::int64_t submitted = Get(submitted_) == kNever ? Ns(begin_) : Get(submitted_);
    const std::int64_t answered = std::max(Get(answered_), submitted);
    const std::int64_t taken = Get(taken_) == kNever ? answered : Get(taken_);
    stage(CallStage::kDecode, submitted - Ns(begin_));
    stage(CallStage::kQueue, taken - submitted);
    if (Get(taken_) != kNever) {
      const bool journal = Get(applied_) != kNever;
      const std::int64_t done = journal ? Get(applied_) : answered;
      const std::int64_t exchange = std::clamp<std::int64_t>(Get(waited_after_) - Get(waited_before_), 0,
                                                             std::max(done, taken) - taken);
      stage(CallStage::kRound, done - taken - exchange);
      stage(CallStage::kExchange, exchange);
      if (journal) stage(CallStage::kJournal, answered - done);
    }
    stage(CallStage::kEncode, Get(replied_) - answered);
    stage(CallStage::kSend, Ns(now) - Get(replied_));
    return call;
  }

 private:
  static constexpr std::int64_t kNever = INT64_MIN;
  static std::int64_t Ns(TimePoint time) { return Nanoseconds(time.time_since_epoch()).count(); }
  template <class T>
  static T Get(const std::atomic<T>& value) {
    return value.load(std::memory_order_relaxed);
  }
  template <class T>
  static void Set(std::atomic<T>& value, T to) {
    value.store(to, std::memory_order_relaxed);
  }

  const CallKind kind_;
  const TimePoint begin_;
  std::atomic<StatusCode> code_ = StatusCode::kOk;
  std::atomic<bool> busy_ = false;
  std::atomic<std::uint64_t> samples_ = 0;
  std::atomic<std::uint64_t> keys_ = 0;
  std::atomic<std::uint64_t> bytes_in_ = 0;
  std::atomic<std::uint64_t> bytes_out_ = 0;
  std::atomic<std::int64_t> submitted_ = kNever;
  std::atomic<std::int64_t> taken_ = kNever;
  std::atomic<std::int64_t> applied_ = kNever;
  std::atomic<std::int64_t> answered_ = kNever;
  std::atomic<std::int64_t> replied_ = kNever;
  std::atomic<std::int64_t> waited_before_ = 0;
  std::atomic<std::int64_t> waited_after_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CALL_TIMES_H_
