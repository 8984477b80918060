// Impl keeps a Client's connections, the options of the tables that it has used, and the runs in flight.
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
  // Cancels the runs in flight and waits for them to end.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Sends `requests`; run.h describes the callbacks. If the client is closing, Start calls `on_done` at once.
  void Start(std::vector<client::Request> requests, client::Run::OnReply on_reply,
             client::Run::OnDone on_done);

  // Makes one call of small messages and waits for its answer. `method` is for example "Admin/Digest".
  Status Call(std::string_view method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite& reply);

  // Gets a table's options, from the server the first time. If they are known, calls `then` in the caller's
  // thread.
  void WithTable(std::string_view table, std::function<void(const Result<TableOptions>&)> then);
  void Remember(const TableOptions& options);
  // Forgets a table's options. Called after an error, because the table may have been made again with other
  // options.
  void Forget(std::string_view table);

  // Returns the samples of each request of a batch. `request_bytes` returns the bytes of a request's arrays.
  std::vector<client::SampleRange> CutBatch(
      const client::CheckedBatch& batch,
      const std::function<std::uint64_t(client::SampleRange)>& request_bytes) const;

  // Chooses a rank and a channel for each part of a batch: neighbouring parts go to the same rank, in rank
  // order. Batches of one part go to the ranks in turn.
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
  // Guarded by mutex_:
  bool closing_ = false;
  std::set<std::shared_ptr<client::Run>> runs_;
  std::map<std::string, TableOptions, std::less<>> tables_;

  client::Channels channels_;  // last, so that its threads end before the members they use
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_
