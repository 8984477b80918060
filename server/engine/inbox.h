// Inbox: where requests wait until their rank announces them, and the bound on the bytes of a rank's requests
// and of their answers.
//
// Thread-safety: any number of threads add; one thread takes.
#ifndef SLOTWISE_SERVER_ENGINE_INBOX_H_
#define SLOTWISE_SERVER_ENGINE_INBOX_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "server/engine/announcement.h"
#include "server/engine/budget.h"
#include "server/engine/clock.h"
#include "server/engine/request.h"
#include "slotwise/status.h"

namespace slotwise {

struct InboxOptions {
  std::uint64_t max_bytes = 0;
  // A part of the favoured step, with what comes together with it, may go this far beyond `max_bytes`.
  std::uint64_t beyond_bytes = 0;
  // What a lookup or push is charged beside its arrays and its answer.
  std::uint64_t request_bytes = 0;
};

class Inbox {
 public:
  // `clock` outlives the inbox.
  explicit Inbox(const InboxOptions& options, Clock& clock = SystemClock())
      : clock_(clock), options_(options), budget_(options.max_bytes) {}

  // Takes all of `requests`, or none. UNAVAILABLE: the inbox is closed, or has no room for all of them; the
  // requests are as they were. While nothing is charged, there is room for any requests; a full inbox has
  // room for requests that are charged nothing, and, within `beyond_bytes`, for a part of the favoured step
  // with what comes together with it. Arrays that are charged to no budget yet are charged to the inbox until
  // they end, and answers until they end.
  Status Add(std::span<Request> requests);

  // Returns the bytes of arrays that came here and have not ended (in the inbox, in rounds, on the device),
  // and of the answers to those requests.
  std::uint64_t bytes() const { return budget_.used(); }

  // From now on a full inbox has room for parts of this step, or of none. The step should be one that waits
  // for parts, the same on every rank: else inboxes that are full of parts of steps would have no room for
  // the parts that complete them.
  void Favour(const std::optional<StepKey>& step);

  struct Taken {
    std::vector<Request> requests;
    bool closed = false;  // only what is still in the inbox can come after these requests
  };
  // Takes the oldest requests out, at most `most`. Does not wait.
  Taken Take(std::size_t most);

  // Waits until there is something to take, or until Close (for the first time) or Nudge was called since the last
  // Take, but no longer than `most`, nor after a NudgeLocally. Returns whether one of the former has happened.
  bool AwaitNews(std::chrono::microseconds most);

  // There is something to tell the other ranks that is no request. For any thread.
  void Nudge();
  // There is something to do for this rank alone. For any thread.
  void NudgeLocally();

  // From now on the inbox takes nothing in.
  void Close();

 private:
  // What the arrays of a request are charged, and what its answer is.
  struct Charge {
    std::uint64_t arrays = 0;
    std::uint64_t answer = 0;
  };
  Charge ChargeOf(Request& request) const;
  bool IsFavoured(const Request& request) const;

  Clock& clock_;
  const InboxOptions options_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Request> requests_;
  Budget budget_;
  std::optional<StepKey> favoured_;
  bool closed_ = false;
  bool closing_is_news_ = false;
  bool nudged_ = false;
  bool nudged_locally_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_INBOX_H_
