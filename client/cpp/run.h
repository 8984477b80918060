// A Run sends the requests of one client call, and ends with the last reply. Runs makes the runs of a client
// and tracks all of the client's ongoing work.
//
// A run sends all its requests at once. If a request's rank is gone or busy, the run sends the same bytes to
// the next rank, so a step stays the same step even if the server has restarted. The wait before that is
// random and grows, or is a little longer than the time that the busy rank named. All requests share one
// deadline; a wait that would end after it is not begun. If a request fails for good, the run cancels the
// others. The run ends once nothing is in flight. The caller's memory is not used after `on_done`.
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
  // If set, the request goes by the memory of the device with this name.
  std::string gpu = {};
  // If set, the request is sent once, to `rank` alone, as soon as there is a connection.
  bool once = false;
  // If given, the run sets it before it sends the request again: an earlier try may have reached the server.
  std::shared_ptr<std::atomic<bool>> sent_again = nullptr;
  // If given, the run sets it to the address of the rank that answered.
  std::shared_ptr<std::string> answered_by = nullptr;
};

inline constexpr const char* kAdminService = "slotwise.v1.Admin";

// Returns a request of a method of the service Admin, which any rank may answer.
Request ToAsk(std::string_view method, const google::protobuf::MessageLite& message,
              MessageExchange::Read read);

class Run final : public Ongoing, public std::enable_shared_from_this<Run> {
 public:
  // Called once, from one of the client's threads.
  using OnDone = std::function<void(Status)>;

  // The requests go to `to`; without it, each try goes to the present connections of `channels`. REQUIRES: at
  // least one request. `channels` outlive the run.
  Run(Channels& channels, const Call& call, std::vector<Request> requests,
      std::shared_ptr<Connections> to = nullptr);

  // Sends the requests. Called once. The run drops `on_done`, which may own the run, after calling it.
  void Start(OnDone on_done);

  void Cancel(const Status& status) override;

 private:
  class Wait;  // a request's wait until it is sent again

  std::shared_ptr<Connections> To() const { return to_ != nullptr ? to_ : channels_.now(); }
  // Returns the channel for a try of a request; null: there is none to the device that the request names.
  static Connections::Channel* ChannelOf(const Request& request, std::size_t attempt, Connections& to);
  // Returns the transport for a request: the data transport if the channel has it and the exchange can use
  // it.
  static Transport& TransportOf(const Request& request, const Connections::Channel& channel);
  void Send(std::size_t index);
  // Sends a try. REQUIRES: mutex_ is held, so that no other thread cancels a try that has not begun.
  Status SendLocked(std::size_t index);
  // Handles the end of a try; `answer` and `read` are those of Transport::Done.
  void TryEnded(std::size_t index, Connections::Channel& channel, const Status& answer,
                const Transport::Read& read);
  // Returns a line for the log, to be written without the lock; empty if the run has failed.
  std::string SendAgainLater(std::size_t index, const std::string& address, const Status& status);
  void FailLocked(Status status);
  // Called when a try of a request has ended and no other follows. The caller must not use the run's
  // callbacks afterwards.
  void EndIfOver(std::unique_lock<std::mutex> lock);

  Channels& channels_;
  const std::shared_ptr<Connections> to_;
  const Call call_;
  const std::vector<Request> requests_;
  OnDone on_done_;  // from Start to the run's end

  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<std::size_t> attempts_;         // of each request
  std::vector<Transport::Cancel> under_way_;  // by request; empty if it is not under way
  std::vector<Wait*> waits_;                  // by request; null if it does not wait
  std::vector<std::string> reasons_;          // by request: why its last try failed
  std::size_t pending_ = 0;                   // requests that are under way, wait, or read a reply
  Status failure_;
  std::minstd_rand random_;
};

class Runs {
 public:
  // `channels` outlive the runs.
  explicit Runs(Channels& channels) : channels_(channels) {}

  // Sends `requests` by a run, to `to` or else to the server's ranks. Calls `on_done` at once if the client
  // is closing or this is a forked child.
  void Send(const Call& call, std::vector<Request> requests, Run::OnDone on_done,
            std::shared_ptr<Connections> to = nullptr);
  // Sends and waits for the end.
  Status SendAndWait(const Call& call, std::vector<Request> requests);

  // Registers `work`, to be cancelled when the client closes or the caller asks to stop, until Leave. Returns
  // FAILED_PRECONDITION, and does nothing, if the client is closing or this is a forked child.
  Status Enter(const std::shared_ptr<Ongoing>& work, const std::stop_token& stop);
  void Leave(const std::shared_ptr<Ongoing>& work);

  // Cancels ongoing work and waits for its end. Refuses later work.
  void Close();
  bool closing() const {
    const std::lock_guard lock(mutex_);
    return closing_;
  }

  // Called before any lock is taken: a thread that a forked child does not have may hold the mutex.
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
