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

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "client/cpp/call.h"
#include "client/cpp/channels.h"
#include "client/cpp/data_link.h"
#include "slotwise/status.h"

namespace slotwise::client {

// One request; `rank` and `channel` say where the first try goes.
struct Request {
  std::string method;  // "/slotwise.v1.Embedding/Lookup"
  grpc::ByteBuffer message = {};
  // Writes the message when the run first sends it, if there is none. So the first parts of a batch travel
  // while the others are written.
  std::function<grpc::ByteBuffer()> write = nullptr;
  // The same request for connections of the data transport, where there are such.
  std::shared_ptr<DataExchange> data = nullptr;
  std::size_t rank = 0;
  std::size_t channel = 0;
  // Not empty: the request is `data`, and goes by the memory of that device.
  std::string gpu = {};
  // Sent to this rank alone, when there is a connection to it.
  bool once = false;
  // If given, the run sets it before it sends the request again: an earlier try may have arrived.
  std::shared_ptr<std::atomic<bool>> sent_again = nullptr;
  // If given, the run sets it to the address of the rank that has answered.
  std::shared_ptr<std::string> answered_by = nullptr;
};

class Run final : public Ongoing, public std::enable_shared_from_this<Run> {
 public:
  // Called from the client's threads, concurrently for different requests; an error ends the run.
  using OnReply = std::function<Status(std::size_t request, const grpc::ByteBuffer& reply)>;
  // Called once, from one of the client's threads.
  using OnDone = std::function<void(Status)>;

  // The requests go to `to`; without it, each try goes to the connections that `channels` have then.
  // REQUIRES: at least one request. `channels` outlive the run.
  Run(Channels& channels, const Call& call, std::vector<Request> requests, OnReply on_reply, OnDone on_done,
      std::shared_ptr<Connections> to = nullptr);

  void Start();
  // Ends the run with `status` before it begins. Called instead of Start.
  void Refuse(const Status& status);

  void Cancel(const Status& status) override;

 private:
  class Flight;  // a request on its way
  class GrpcFlight;
  class DataFlight;
  class Wait;  // a request's wait until it is sent again

  void Send(std::size_t index);
  // `read` reads a reply whose status is OK.
  void FlightEnded(std::size_t index, const std::string& address, const grpc::Status& status,
                   const std::function<Status()>& read);
  // Returns a line for people, to be logged without the lock; none if the run has failed.
  std::string SendAgainLater(std::size_t index, const std::string& address, const grpc::Status& status);
  std::shared_ptr<Connections> To() const { return to_ != nullptr ? to_ : channels_.now(); }
  void FailLocked(Status status);
  // Called when a request's event has arrived and nothing was sent again for it. The caller must not use the
  // run's callbacks afterwards.
  void EndIfOver(std::unique_lock<std::mutex> lock);

  Channels& channels_;
  const std::shared_ptr<Connections> to_;
  const Call call_;
  std::vector<Request> requests_;  // Start writes the messages; then they stay
  const OnReply on_reply_;
  OnDone on_done_;

  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<std::size_t> attempts_;  // of each request
  std::vector<Flight*> flights_;       // of each request, null if it is not in flight
  std::vector<Wait*> waits_;           // of each request, null if it does not wait
  std::vector<std::string> reasons_;   // of each request: why its last try failed
  std::size_t pending_ = 0;            // flights, waits and replies being read
  Status failure_;
  std::minstd_rand random_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_RUN_H_
