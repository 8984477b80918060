// Inbox: where requests wait until their rank announces them, and the bound on the bytes of a rank's
// requests.
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

class Inbox {
 public:
  // `clock` outlives the inbox.
  explicit Inbox(std::uint64_t max_bytes, Clock& clock = SystemClock()) : clock_(clock), budget_(max_bytes) {}

  // Takes all of `requests`, or none. UNAVAILABLE: the inbox is closed, or has no room for all of them; the
  // requests are as they were. While no request's arrays are alive, there is room for any requests; a full
  // inbox has room for requests without arrays, and for a part of the favoured step with what comes together
  // with it. Arrays that are charged to no budget yet are charged to the inbox until they end.
  Status Add(std::span<Request> requests);

  // Returns the bytes of arrays that came here and have not ended: in the inbox, in rounds, on the device.
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

  // Waits until there is something to take, or until Close was called for the first time since the last Take,
  // but no longer than `most`. Returns whether one of the two has happened.
  bool AwaitNews(std::chrono::microseconds most);

  // From now on the inbox takes nothing in.
  void Close();

 private:
  bool IsFavoured(const Request& request) const;

  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Request> requests_;
  Budget budget_;
  std::optional<StepKey> favoured_;
  bool closed_ = false;
  bool closing_is_news_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_INBOX_H_
