// Impl keeps a Client's connections, the options of the tables that it has used, and its ongoing work.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_
#define SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_

#include <google/protobuf/message.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/call.h"
#include "client/cpp/channels.h"
#include "client/cpp/message_memory.h"
#include "client/cpp/run.h"
#include "client/cpp/table_states.h"
#include "slotwise/client.h"
#include "wire/access.h"

namespace slotwise {

class Client::Impl {
 public:
  // For a server of which only some addresses are known.
  Impl(const std::vector<std::string>& seeds, const ClientOptions& options, std::shared_ptr<Access> access);
  // For the server that returned `topology` when it was asked at one of `seeds`.
  Impl(const std::vector<std::string>& seeds, const ClientOptions& options, const ServerTopology& topology,
       const std::shared_ptr<Access>& access);
  ~Impl() { Close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Cancels ongoing work and waits for its end. Refuses later calls.
  void Close();

  // Returns the Call of a call that begins now.
  client::Call CallOf(const CallOptions& options) const;

  // Calls a method of the service Admin and waits for the answer (client/cpp/methods.cc). `rank` names the
  // only rank to ask; nothing: any rank may answer.
  Status Ask(const CallOptions& options, std::string_view method, const google::protobuf::Message& request,
             google::protobuf::Message& reply, std::optional<std::size_t> rank = std::nullopt);

  // Moves to the ranks of `topology` and takes over its limits, if its server instance is another one.
  void Meet(const ServerTopology& topology);
  // Returns the server instance whose ranks this client knows.
  std::uint64_t instance() const { return instance_; }
  // Learns the ranks of the server instance that gave `answer`, unless the client knows them. Asks ranks for
  // the topology, beginning with the one that gave `answer`. Calls `then` once a rank has named another
  // instance than the known one, or 10 s have passed without one, or at the call's deadline, or when the call
  // is cancelled. While ranks are being asked, later calls wait for the same answers.
  void LearnOfNewStart(const client::Call& call, const client::Answer& answer,
                       const std::function<void()>& then);

  // Asks what became of the client's other tables, so that a restart or a load is reported once, and calls
  // `done` with all losses. A table that cannot be asked about is reported by a later call.
  void AddOtherLosses(const client::Call& call, const Status& loss, const Done& done);

  // These two cache the options of tables.
  void Remember(const TableOptions& options);
  std::optional<TableOptions> Known(std::string_view table) const;
  // Forgets a table's options. Called after an error, because the table may have been made again with other
  // options.
  void Forget(std::string_view table);
  void ForgetOptions();  // of all tables
  // Forgets the options and the states of all tables, because the caller has replaced them.
  void ForgetTables();
  void ForgetAllOf(std::string_view table);

  // Returns how many calls of this kind (pushes, or all others) have taken a turn before.
  std::size_t TakeTurn(bool pushes) { return turns_[pushes ? 0 : 1]++; }

  const ClientOptions& options() const { return options_; }
  client::Channels& channels() { return channels_; }
  client::ServerLimits limits() const {
    const std::lock_guard lock(mutex_);
    return limits_;
  }
  // Returns how many rows (or keys) of `row_bytes` bytes travel in one message: about 1 MiB of them, or as
  // many as the server's limits on a message and a round allow, but at least 1.
  std::size_t RowsAMessage(std::size_t row_bytes) const;
  Session& session() { return session_; }
  client::TableStates& states() { return states_; }
  const std::shared_ptr<client::MessageMemory>& message_memory() const { return message_memory_; }
  client::Runs& runs() { return runs_; }
  bool IsOfThisProcess() const { return runs_.AreOfThisProcess(); }

 private:
  // These two do what some methods need beyond their message. NoteRequest runs before the request is sent,
  // and its error prevents sending; NoteReply runs once the reply has come.
  Status NoteRequest(const google::protobuf::Message& request);
  Status NoteReply(const google::protobuf::Message& request, const google::protobuf::Message& reply);

  // Asks some ranks and seeds for the topology, to find a new server instance. If they are being asked
  // already, asks once more afterwards.
  void LookForNewStart();
  void LookEnded();
  // Asks a rank of `to` once for the topology, and calls Meet with the reply. Then calls `ended` with the
  // reply's server instance, or with 0 if no reply came within `limit`.
  void AskForTopology(std::size_t rank, std::shared_ptr<client::Connections> to,
                      std::chrono::milliseconds limit, const std::function<void(std::uint64_t)>& ended);
  class Learner;
  struct Learning;
  void Learned(const std::shared_ptr<Learning>& learning, std::uint64_t instance);

  const ClientOptions options_;
  const std::vector<client::RankAddress> seeds_;
  Session session_;
  client::TableStates states_;
  const std::shared_ptr<client::MessageMemory> message_memory_ = std::make_shared<client::MessageMemory>();
  std::array<std::atomic<std::size_t>, 2> turns_{};  // of pushes, and of all else
  std::mutex meeting_;                               // held by Meet
  std::atomic<std::uint64_t> instance_ = 0;  // written under meeting_: the instance that channels_ lead to

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  client::ServerLimits limits_;
  std::map<std::string, TableOptions, std::less<>> tables_;
  int questions_ = 0;  // requests for the topology that are under way
  bool look_again_ = false;
  std::size_t looks_ = 0;
  std::shared_ptr<Learning> learning_;             // null: no call waits for a new topology
  std::shared_ptr<client::Connections> to_seeds_;  // made when first needed

  client::Runs runs_{channels_};
  client::Channels channels_;  // last, so that its threads end before the members that they use
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_
