// Request queue: where requests wait until their rank proposes them, in turns of their callers, and the bound
// on the bytes of a rank's requests and of their answers.
//
// Parts of steps wait for parts that others may never send. So a share of the bytes is kept from them, and
// whatever waits, requests that end by themselves come in.
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
  // A part of the favoured step, with what comes together with it, may go this far beyond `max_bytes`. A
  // message of several requests is charged no more than `max_bytes` and this.
  std::uint64_t beyond_bytes = 0;
  // What a lookup or push is charged beside its arrays and its answer.
  std::uint64_t request_bytes = 0;
};

class RequestQueue {
 public:
  // Of `max_bytes` one part in so many is kept from parts of steps that others have to complete.
  static constexpr std::uint64_t kShareForOthers = 4;
  // Messages of at most a kSmall-th of `max_bytes`, of callers who have nothing waiting here, may go so much
  // beyond it: a kShareForSmall-th. So no small request is refused for others' large ones.
  static constexpr std::uint64_t kSmall = 1024;
  static constexpr std::uint64_t kShareForSmall = 16;
  // So many requests about whole tables may wait here, of one caller and of all callers together. They are
  // charged nothing. The server's own requests are not counted among one caller's.
  static constexpr std::size_t kTableRequestsOfCaller = 64;
  static constexpr std::size_t kTableRequests = 16'384;

  // `clock` outlives the request queue.
  explicit RequestQueue(const RequestQueueOptions& options, Clock& clock = SystemClock());

  // Takes all of `requests`, which came in one message of one caller, or none; the requests are as they were
  // if it refuses. UNAVAILABLE: the request queue is closed. RESOURCE_EXHAUSTED with a time to try again
  // (drain_meter.h): it has no room for all of them, or too many requests about tables wait; without one:
  // they are several, and too much for any request queue.
  //
  // While nothing is charged, there is room for any requests, and always for requests that are charged
  // nothing. Otherwise there is room within `max_bytes`, of which a share is kept:
  //  - A message with a part of a step that other messages must complete has room in `max_bytes` less the
  //    share; with a part of the favoured step, beyond all that, within `beyond_bytes`.
  //  - Other messages have room within the share, whatever the parts of steps take. (Those with all parts of
  //    a step of several only as long as all together is within `beyond_bytes`.)
  //  - Small ones of these others, if their callers have nothing waiting, have room in a share beyond
  //    `max_bytes`.
  // Arrays that are charged to no budget yet are charged to the request queue until they end, and answers
  // until they end.
  Status Add(std::span<Request> requests);

  // Returns the bytes of arrays that came here and have not ended (in the request queue, in rounds, on the
  // device), and of the answers to those requests.
  std::uint64_t bytes() const { return parts_.used() + others_.used(); }
  // Returns how many requests wait to be taken out. For any thread.
  std::size_t requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_.size();
  }

  // From now on a full request queue has room for parts of this step, or of none. The step should be one that
  // waits for parts, the same on every rank: else request queues that are full of parts of steps would have
  // no room for the parts that complete them.
  void Favour(const std::optional<StepKey>& step);

  // Charges a request that was taken as a part that others have to complete, which it may not have seemed to
  // be when it came: others had sent something else under the step's name.
  void ChargeAsWaiting(Request& request);

  struct Taken {
    std::vector<Request> requests;
    std::vector<Request> abandoned;  // by their callers while they waited here: they need no answer
    bool closed = false;             // only what is still in the request queue can come after these requests
  };
  // Takes requests out in turns of their callers, at most `most`, and begins no turn once they have
  // `most_bytes` (caller_queues.h); and the abandoned ones on the way. Does not wait.
  Taken Take(std::size_t most, std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

  // Returns when somebody for whom there is no room may ask again.
  std::chrono::milliseconds RetryAfter();

  // Waits until there is something to take, or until Close (for the first time) or Nudge was called since the
  // last Take, but no longer than `most`, nor after a NudgeLocally. Returns whether one of the former has
  // happened.
  bool AwaitNews(std::chrono::microseconds most);
  // Returns whether AwaitNews would return at once.
  bool HasNews() const;

  // From now on a thread that waits by another means than AwaitNews hears by `ring`, on any thread, that
  // AwaitNews may have an end. REQUIRES: no other thread uses the request queue yet.
  void RingToo(std::function<void()> ring) { ring_ = std::move(ring); }

  // There is something to tell the other ranks that is no request. For any thread.
  void Nudge();
  // There is something to do for this rank alone. For any thread.
  void NudgeLocally();

  // From now on the request queue takes nothing in.
  void Close();

 private:
  // What the arrays of a request are charged, and what its answer is.
  struct Charge {
    std::uint64_t arrays = 0;
    std::uint64_t answer = 0;
  };
  Charge ChargeOf(Request& request) const;
  // The steps of several parts, or tables, of which a message has a part.
  enum class Steps { kNone, kComplete, kOthersComplete };
  static Steps StepsIn(std::span<const Request> requests);
  struct Message {
    std::span<const Request> requests;
    Steps steps = Steps::kNone;
    std::uint64_t bytes = 0;  // that it is charged
  };
  // Returns room for the message, if there is.
  std::optional<Reservation> Reserve(const Message& message);
  // Returns whether all that is charged stays within `max_bytes` and so many more with the message.
  bool Fits(const Message& message, std::uint64_t beyond) const;
  Status Busy(const Message& message);
  // Refuses the request if it is about a table, and too many such requests wait.
  Status TooManyOfTables(const Request& request);
  bool IsFavoured(const Request& request) const;
  // Returns whether the message is small, and its caller has nothing waiting.
  bool IsSmallAndFirst(const Message& message) const;

  // Says that there may be something to wait for no longer.
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
