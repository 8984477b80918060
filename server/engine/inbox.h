// Inbox: where requests wait until their rank announces them.
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
#include <variant>
#include <vector>

#include "server/engine/announcement.h"
#include "server/engine/clock.h"
#include "server/engine/request.h"
#include "slotwise/status.h"

namespace slotwise {

using Request =
    std::variant<LookupRequest, PushRequest, CreateTableRequest, DropTableRequest, SummarizeRequest,
                 SetLearningRateRequest, ImportRequest, EraseRequest, ListKeysRequest, ReadRowsRequest>;

// Bytes of host memory that a request holds.
std::uint64_t BytesOf(const Request& request);

// All but the ticket.
Announcement Describe(const Request& request);

// Answers a request with an error, whatever its kind.
void Refuse(Request& request, const Status& status);

// Lets go of a push's arrays; it can still be answered. REQUIRES: `request` is a push.
void DropArrays(Request& request);

class Inbox {
 public:
  // `clock` outlives the inbox.
  explicit Inbox(std::uint64_t max_bytes, Clock& clock = SystemClock())
      : clock_(clock), max_bytes_(max_bytes) {}

  // Takes all of `requests`, or none. UNAVAILABLE, and they are untouched, if the inbox is closed, or has no room for all
  // of them. An empty one has room for any, and a full one for those without arrays, or with a part of the favoured step.
  // Bytes count until Release.
  Status Add(std::span<Request> requests);
  void Release(std::uint64_t bytes);

  // Makes room for parts of this step alone, or of none. It should be one that waits for parts, the same on every rank:
  // else inboxes that are full of parts of steps would have no room for those that complete them.
  void Favour(const std::optional<StepKey>& step);

  struct Taken {
    std::vector<Request> requests;
    bool closed = false;  // nothing can come after these but what is still in the inbox
  };
  // The oldest requests, at most `most`. Does not wait.
  Taken Take(std::size_t most);

  // Waits until there is something to take, or Close was called for the first time since the last Take; at most
  // `most`. True if so.
  bool AwaitNews(std::chrono::microseconds most);

  void Close();

 private:
  bool IsFavoured(const Request& request) const;

  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Request> requests_;
  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::optional<StepKey> favoured_;
  bool closed_ = false;
  bool closing_is_news_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_INBOX_H_
