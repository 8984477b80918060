// A Run sends the requests of one client call, and ends with the last reply. Runs makes the runs of a client,
// and knows all of the client's work that is under way.
//
// A run sends all its requests at once. If a request's rank is gone or too busy, the run sends the request to
// the next rank, after a growing, random wait, or a little more than the time that the busy rank has named,
// until the deadline that all requests share: the same bytes, so a step is the same step, though the server
// may have been started again meanwhile. A wait that would end past the deadline is not begun. If a request
// fails for good, the run cancels the others. The run ends once nothing is in flight any more; the caller's
// memory is not touched after `on_done`.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_RUN_H_
#define SLOTWISE_CLIENT_CPP_RUN_H_

#include <google/protobuf/message_lite.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
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
  static Connections::Channel* ChannelOf(const Request& request, std::size_t attempt, Connections& to);
  // Returns the transport that carries a request: the data transport, if the channel and the exchange have
  // one.
  static Transport& TransportOf(const Request& request, const Connections::Channel& channel);
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

class Runs {
 public:
  // `channels` outlive the runs.
  explicit Runs(Channels& channels) : channels_(channels) {}

  // Sends `requests` by a run. If the client is closing, or this is a forked child, calls `on_done` at once.
  // `to`: where the requests go, if not to the server's ranks.
  void Send(const Call& call, std::vector<Request> requests, Run::OnDone on_done,
            std::shared_ptr<Connections> to = nullptr);
  // Sends and waits for the end.
  Status SendAndWait(const Call& call, std::vector<Request> requests);

  // Cancels `work` when the client closes or the caller asks to stop, until Leave. Returns
  // FAILED_PRECONDITION, and does nothing, if the client is closing or this is a forked child.
  Status Enter(const std::shared_ptr<Ongoing>& work, const std::stop_token& stop);
  void Leave(const std::shared_ptr<Ongoing>& work);

  // Cancels what is under way and waits for its end. Refuses what comes later.
  void Close();
  bool closing() const {
    const std::lock_guard lock(mutex_);
    return closing_;
  }

  // Asked before any lock: a thread that a forked child does not have may have held the mutex.
  bool AreOfThisProcess() const { return process_ == getpid(); }
  static Status OfAnotherProcess();

 private:
  using StopCallback = std::stop_callback<std::function<void()>>;

  Channels& channels_;
  const pid_t process_ = getpid();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool closing_ = false;
  std::map<std::shared_ptr<Ongoing>, std::unique_ptr<StopCallback>> ongoing_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_RUN_H_
