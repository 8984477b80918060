// An Export reads one stream of rows from each rank, all at once.
//
// Each rank's stream is of that rank's rows alone, so a stream never goes to another rank. A stream that
// cannot begin is tried again until the timeout; a stream that breaks later fails the export, because nobody
// can take back the rows that the caller has seen. Each stream reads a little ahead and then waits until the
// caller takes its replies.
// Thread-safety: safe from any thread; one thread at a time takes replies.
#ifndef SLOTWISE_CLIENT_CPP_EXPORT_H_
#define SLOTWISE_CLIENT_CPP_EXPORT_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/cpp/call.h"
#include "client/cpp/channels.h"
#include "slotwise/status.h"

namespace slotwise::client {

class Export final : public Ongoing, public std::enable_shared_from_this<Export> {
 public:
  // `requests` are v1.ExportRequests; each goes to all ranks, and the next one when all have answered.
  // `channels` outlive what is in flight.
  Export(Channels& channels, const Call& call, std::vector<grpc::ByteBuffer> requests);
  ~Export() override;

  // Calls `on_over` once, when nothing is in flight any more; `channels` may go then.
  void Start(std::function<void()> on_over);
  void Cancel(const Status& status) override;

  // Waits until there is a reply, an error or the end, or until `time`; returns whether there is one.
  bool Wait(std::chrono::steady_clock::time_point time);
  // Takes the next reply, or nothing at the end. Ends the export with DEADLINE_EXCEEDED if no rank sends
  // anything within the timeout.
  Result<std::optional<grpc::ByteBuffer>> Take();

 private:
  class Stream;  // of one rank, for one request
  class Event;   // a stream's next event
  struct Reply {
    std::shared_ptr<Stream> stream;
    grpc::ByteBuffer bytes;
  };
  using Lock = std::unique_lock<std::mutex>;

  bool IsThereLocked() const { return !replies_.empty() || over_ || !failure_.ok(); }
  void StartStreamsLocked();
  void FailLocked(Status status);
  // Called when a stream's event has been dealt with; ends the export if that was the last one.
  void EndIfOver(Lock lock);

  Channels& channels_;
  const std::shared_ptr<Connections> ranks_;  // those of when it began: each sends its own rows
  const Call call_;
  const std::vector<grpc::ByteBuffer> requests_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::function<void()> on_over_;
  std::size_t next_request_ = 0;
  std::vector<std::shared_ptr<Stream>> streams_;  // of each rank, null when it has ended
  std::size_t running_ = 0;                       // streams that have not ended
  std::deque<Reply> replies_;
  Status failure_;
  bool over_ = false;
  std::optional<std::chrono::steady_clock::time_point> waiting_until_;  // while the caller waits for a reply
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_EXPORT_H_
