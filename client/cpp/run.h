// A Run sends the requests of one client call, and ends with the last reply.
//
// A run sends all its requests at once. If a request's rank is gone or too busy, the run sends the request to
// the next rank, after a growing, random wait, or a little more than the time that the busy rank has named,
// until the deadline that all requests share: the same bytes, so a step is the same step, though the server
// may have been started again meanwhile. A wait that would end past the deadline is not begun. If a request
// fails for good, the run cancels the others. The run ends once nothing is in flight any more, and nobody
// touches the caller's memory after `on_done`.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_RUN_H_
#define SLOTWISE_CLIENT_CPP_RUN_H_

#include <google/protobuf/message_lite.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/call.h"
#include "client/cpp/channels.h"
#include "client/cpp/transport.h"
#include "slotwise/status.h"

namespace slotwise::client {

// One request; `rank` and `channel` say where the first try goes.
struct Request {
  std::shared_ptr<Exchange> exchange;
  std::size_t rank = 0;
  std::size_t channel = 0;
  // Not empty: the request goes by the memory of that device.
  std::string gpu = {};
  // Sent to this rank alone, when there is a connection to it.
  bool once = false;
  // If given, the run sets it before it sends the request again: an earlier try may have arrived.
  std::shared_ptr<std::atomic<bool>> sent_again = nullptr;
  // If given, the run sets it to the address of the rank that has answered.
  std::shared_ptr<std::string> answered_by = nullptr;
};

inline constexpr const char* kAdminService = "slotwise.v1.Admin";

// Returns a request of a method of service Admin, which any rank may answer.
Request ToAsk(std::string_view method, const google::protobuf::MessageLite& message,
              MessageExchange::Read read);

class Run final : public Ongoing, public std::enable_shared_from_this<Run> {
 public:
  // Called once, from one of the client's threads.
  using OnDone = std::function<void(Status)>;

  // The requests go to `to`; without it, each try goes to the connections that `channels` have then.
  // REQUIRES: at least one request. `channels` outlive the run.
  Run(Channels& channels, const Call& call, std::vector<Request> requests,
      std::shared_ptr<Connections> to = nullptr);

  // Sends the requests. Is called once; the run drops `on_done`, which may hold the run, after the call.
  void Start(OnDone on_done);

  void Cancel(const Status& status) override;

 private:
  class Wait;  // a request's wait until it is sent again

  std::shared_ptr<Connections> To() const { return to_ != nullptr ? to_ : channels_.now(); }
  // Returns the channel of a request's try; null: there is no way to the device that it names.
  Connections::Channel* ChannelOf(const Request& request, std::size_t attempt, Connections& to) const;
  void Send(std::size_t index);
  // Sends a try. REQUIRES: mutex_ is held, so that no other thread cancels a try that has not begun.
  Status SendLocked(std::size_t index);
  // A try has ended: `answer` and `read` are Transport::Done's.
  void TryEnded(std::size_t index, Connections::Channel& channel, const Status& answer,
                const Transport::Read& read);
  // Returns a line for people, to be logged without the lock; none if the run has failed.
  std::string SendAgainLater(std::size_t index, const std::string& address, const Status& status);
  void FailLocked(Status status);
  // Called when a request's event has arrived and nothing was sent again for it. The caller must not use the
  // run's callbacks afterwards.
  void EndIfOver(std::unique_lock<std::mutex> lock);

  Channels& channels_;
  const std::shared_ptr<Connections> to_;
  const Call call_;
  const std::vector<Request> requests_;
  OnDone on_done_;  // from Start to the run's end

  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<std::size_t> attempts_;         // of each request
  std::vector<Transport::Cancel> under_way_;  // of each request, empty if it is not under way
  std::vector<Wait*> waits_;                  // of each request, null if it does not wait
  std::vector<std::string> reasons_;          // of each request: why its last try failed
  std::size_t pending_ = 0;                   // requests that are under way, wait, or read a reply
  Status failure_;
  std::minstd_rand random_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_RUN_H_
