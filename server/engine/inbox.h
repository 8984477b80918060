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
#include <variant>
#include <vector>

#include "server/engine/announcement.h"
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

class Inbox {
 public:
  explicit Inbox(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // UNAVAILABLE, and `request` is untouched, if the inbox is closed or full. Bytes count until Release.
  Status Add(Request& request);
  void Release(std::uint64_t bytes);

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
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Request> requests_;
  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  bool closed_ = false;
  bool closing_is_news_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_INBOX_H_
