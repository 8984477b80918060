// RequestQueue: holds a rank's requests until the rank proposes them, in turns of their callers, and bounds
// the bytes of a rank's requests and of their answers.
//
// Parts of steps wait for other parts, which may never come. So they cannot use a share of the bytes, which
// stays for requests that need no other part.
// Thread-safety: any number of threads add; one thread takes.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_REQUEST_QUEUE_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_REQUEST_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "server/engine/budget.h"
#include "server/engine/clock.h"
#include "server/engine/schedule/caller_queues.h"
#include "server/engine/schedule/drain_meter.h"
#include "server/engine/schedule/proposal.h"
#include "server/engine/schedule/request.h"
#include "slotwise/status.h"

namespace slotwise {

struct RequestQueueOptions {
  std::uint64_t max_bytes = 0;
  // A part of the favoured step, with the rest of its message, may go this far beyond `max_bytes`. A message
  // of several requests is charged at most max_bytes + beyond_bytes.
  std::uint64_t beyond_bytes = 0;
  // A lookup or push is charged these bytes beside its arrays and its answer.
  std::uint64_t request_bytes = 0;
};

class RequestQueue {
 public:
  // A kShareForOthers-th of `max_bytes` is kept from parts of steps that other messages have to complete.
  static constexpr std::uint64_t kShareForOthers = 4;
  // Messages of at most a kSmall-th of `max_bytes`, of callers without waiting requests here, may go a
  // kShareForSmall-th beyond `max_bytes`. So others' large requests never cause the refusal of a small one.
  static constexpr std::uint64_t kSmall = 1024;
  static constexpr std::uint64_t kShareForSmall = 16;
  // The most requests about whole tables that may wait here, of one caller and of all callers together. They
  // are charged nothing. The bound for one caller does not hold for the server's own requests.
  static constexpr std::size_t kTableRequestsOfCaller = 64;
  static constexpr std::size_t kTableRequests = 16'384;

  // `clock` outlives the request queue.
  explicit RequestQueue(const RequestQueueOptions& options, Clock& clock = SystemClock());

  // Takes all of `requests`, which came in one message of one caller, or none; a refusal leaves the requests
  // unchanged. UNAVAILABLE: the request queue is closed. RESOURCE_EXHAUSTED with a time to try again
  // (drain_meter.h): the queue has no room for all of them, or too many requests about tables wait; without a
  // time: they are several requests, and too large even for an empty queue.
  //
  // While nothing is charged, there is room for any requests; requests that are charged nothing always have
  // room. Otherwise the room is within `max_bytes`, of which a share is reserved:
  //  - A message with a part of a step that other messages must complete has room in `max_bytes` less the
  //    share; with a part of the favoured step, it also has room beyond that, within `beyond_bytes`.
  //  - Other messages have room within the share, whatever the parts of steps take. (A message that completes
  //    a step of several parts has room only as long as all charges together are within `beyond_bytes`.)
  //  - Small ones among these other messages also have room in a share beyond `max_bytes`, if no request of
  //    their callers waits.
  // Arrays without another budget are charged to the request queue until they are freed, and so are answers.
  Status Add(std::span<Request> requests);

  // Returns the bytes that are charged now: of arrays that came here and are not freed (in the request queue,
  // in rounds, on the device), and of answers.
  std::uint64_t bytes() const { return parts_.used() + others_.used(); }
  // Returns how many requests wait to be taken out. For any thread.
  std::size_t requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_.size();
  }

  // From now on a full request queue has room for parts of this step, or of no step. The step should be one
  // that waits for parts, the same on every rank: otherwise all request queues could fill up with parts of
  // incomplete steps and have no room for the parts that complete them.
  void Favour(const std::optional<StepKey>& step);

  // Charges a taken request as a part that other messages have to complete. It may have come in a message
  // that seemed to have the whole step, but other callers had sent other parts under the step's name.
  void ChargeAsWaiting(Request& request);

  struct Taken {
    std::vector<Request> requests;
    std::vector<Request> abandoned;  // their callers left while they waited; they need no answer
    bool closed = false;             // the queue takes no more requests: only those in it are still to come
  };
  // Takes requests out in turns of their callers, at most `most`, and begins no turn once they have
  // `most_bytes` (caller_queues.h). Also takes out the abandoned requests on the way. Does not wait.
  Taken Take(std::size_t most, std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

  // Returns after what time a refused caller may try again.
  std::chrono::milliseconds RetryAfter();

  // Waits until there are requests to take, or Close (for the first time) or Nudge was called since the last
  // Take, and returns true then. Returns false after `most`, or after a NudgeLocally.
  bool AwaitNews(std::chrono::microseconds most);
  // Returns whether AwaitNews would return true at once.
  bool HasNews() const;

  // From now on, calls `ring`, on any thread, whenever AwaitNews may return, for a thread that waits by other
  // means. REQUIRES: no other thread uses the request queue yet.
  void RingToo(std::function<void()> ring) { ring_ = std::move(ring); }

  // Wakes the engine's thread to send news to the other ranks other than a request. For any thread.
  void Nudge();
  // Wakes the engine's thread for work of this rank alone. For any thread.
  void NudgeLocally();

  // From now on the request queue refuses all requests.
  void Close();

 private:
  // The bytes that a request's arrays and its answer are charged.
  struct Charge {
    std::uint64_t arrays = 0;
    std::uint64_t answer = 0;
  };
  Charge ChargeOf(Request& request) const;
  // Says whether a message has parts of steps with several parts or tables, and whether it completes them.
  enum class Steps { kNone, kComplete, kOthersComplete };
  static Steps StepsIn(std::span<const Request> requests);
  struct Message {
    std::span<const Request> requests;
    Steps steps = Steps::kNone;
    std::uint64_t bytes = 0;  // charged for it
  };
  // Reserves room for the message; nothing if there is none.
  std::optional<Reservation> Reserve(const Message& message);
  // Returns whether the charged bytes and the message's stay within max_bytes + beyond.
  bool Fits(const Message& message, std::uint64_t beyond) const;
  Status Busy(const Message& message);
  // Returns a refusal if the request is about a table and too many such requests wait; otherwise OK.
  Status TooManyOfTables(const Request& request);
  bool IsFavoured(const Request& request) const;
  // Returns whether the message is small, and no request of its caller waits.
  bool IsSmallAndFirst(const Message& message) const;

  // Wakes the threads that wait for news.
  void TellNews();

  Clock& clock_;
  const RequestQueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::function<void()> ring_;
  CallerQueues requests_;
  Budget parts_;   // charged for messages with parts of steps that others have to complete
  Budget others_;  // charged for all other messages
  DrainMeter bytes_left_;
  DrainMeter table_requests_left_;
  std::optional<StepKey> favoured_;
  bool closed_ = false;
  bool closing_is_news_ = false;
  bool nudged_ = false;
  bool nudged_locally_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_REQUEST_QUEUE_H_
