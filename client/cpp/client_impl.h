// What a Client keeps: its connections, the tables it has met, and the runs in flight.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_
#define SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_

#include <google/protobuf/message_lite.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/channels.h"
#include "client/cpp/cut.h"
#include "client/cpp/messages.h"
#include "client/cpp/run.h"
#include "slotwise/client.h"

namespace slotwise {

class Client::Impl {
 public:
  // `max_message_bytes`: the largest request that the server takes.
  Impl(std::vector<std::string> addresses, const ClientOptions& options, std::uint64_t max_message_bytes);
  // Cancels the runs in flight and waits for them.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Sends `requests`; see Run. If the client is closing, `on_done` is called at once.
  void Start(std::vector<client::Request> requests, client::Run::OnReply on_reply,
             client::Run::OnDone on_done);

  // One call of small messages, waited for. `method` is "Admin/Digest".
  Status Call(std::string_view method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite& reply);

  // A table's options, asked for once. `then` is called in this thread if they are known.
  void WithTable(std::string_view table, std::function<void(const Result<TableOptions>&)> then);
  void Remember(const TableOptions& options);
  // When something failed: the table may have been made anew, with other options.
  void Forget(std::string_view table);

  // The samples of each request of a batch. `request_bytes`: of its arrays.
  std::vector<client::SampleRange> CutBatch(
      const client::CheckedBatch& batch,
      const std::function<std::uint64_t(client::SampleRange)>& request_bytes) const;

  // The parts of a batch on their way: neighbours to the same rank, in rank order. Batches of one part take turns.
  void Address(std::vector<client::Request>& parts);

  client::Channels& channels() { return channels_; }
  const ClientOptions& options() const { return options_; }
  std::uint64_t largest_request() const { return largest_request_; }
  Session& session() { return session_; }

 private:
  const ClientOptions options_;
  const std::uint64_t largest_request_;
  Session session_;
  std::atomic<std::size_t> turns_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool closing_ = false;
  std::set<std::shared_ptr<client::Run>> runs_;
  std::map<std::string, TableOptions, std::less<>> tables_;

  client::Channels channels_;  // last: its threads end before what they use
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_
