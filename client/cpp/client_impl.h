// Impl keeps a Client's connections, the options of the tables that it has used, and what is ongoing.
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
  // For a server that nothing is known of yet but some of its addresses.
  Impl(const std::vector<std::string>& seeds, const ClientOptions& options, std::shared_ptr<Access> access);
  // For the server that has told its topology when asked at one of `seeds`.
  Impl(const std::vector<std::string>& seeds, const ClientOptions& options, const ServerTopology& topology,
       const std::shared_ptr<Access>& access);
  ~Impl() { Close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Cancels what is ongoing and waits for its end. Refuses what comes later.
  void Close();

  // Returns what holds for a call that begins now.
  client::Call CallOf(const CallOptions& options) const;

  // Makes one call of small messages, of a method of the service Admin, and waits for its answer
  // (client/cpp/methods.cc). `rank`: the rank that alone is asked; nothing: any.
  Status Ask(const CallOptions& options, std::string_view method, const google::protobuf::Message& request,
             google::protobuf::Message& reply, std::optional<std::size_t> rank = std::nullopt);

  // Moves to the ranks of `topology`, and keeps to its limits, if the server has been started again since the
  // last one.
  void Meet(const ServerTopology& topology);
  // Returns the start of the server that this client has met: whose ranks it knows.
  std::uint64_t instance() const { return instance_; }
  // Asks ranks for the topology, the one that has given `answer` first, unless the client knows the ranks of
  // the start that has given it. Calls `then` once a rank has said another start than is known now, or none
  // did within 10 s, or at the call's deadline, or when the call is cancelled. While ranks are being asked,
  // later calls wait for the same answers.
  void LearnOfNewStart(const client::Call& call, const client::Answer& answer,
                       const std::function<void()>& then);

  // Asks what became of the client's other tables, so that a restart or a load is heard of once, and calls
  // `done` with all that is lost. What cannot be asked is heard of by a later call.
  void AddOtherLosses(const client::Call& call, const Status& loss, const Done& done);

  // What is known of the tables' options.
  void Remember(const TableOptions& options);
  std::optional<TableOptions> Known(std::string_view table) const;
  // Forgets a table's options. Called after an error, because the table may have been made again with other
  // options.
  void Forget(std::string_view table);
  void ForgetOptions();  // of all tables
  // Forgets all tables' options and what is known to be in them: the caller has replaced them.
  void ForgetTables();
  void ForgetAllOf(std::string_view table);

  // Calls take turns: returns how many calls that push, or that do not, have taken one before.
  std::size_t TakeTurn(bool pushes) { return turns_[pushes ? 0 : 1]++; }

  const ClientOptions& options() const { return options_; }
  client::Channels& channels() { return channels_; }
  client::ServerLimits limits() const {
    const std::lock_guard lock(mutex_);
    return limits_;
  }
  // Returns how many rows, or keys, of so many bytes travel in one message: about 1 MiB of them, or as many
  // as the server takes in a message and in a round, but at least 1.
  std::size_t RowsAMessage(std::size_t row_bytes) const;
  Session& session() { return session_; }
  client::TableStates& states() { return states_; }
  const std::shared_ptr<client::MessageMemory>& message_memory() const { return message_memory_; }
  client::Runs& runs() { return runs_; }
  bool IsOfThisProcess() const { return runs_.AreOfThisProcess(); }

 private:
  // Do what the client does besides for some methods: before their request is sent, which an error prevents,
  // and once their reply is there.
  Status NoteRequest(const google::protobuf::Message& request);
  Status NoteReply(const google::protobuf::Message& request, const google::protobuf::Message& reply);

  // Asks some ranks and seeds for the topology, to meet a server that was started again; when they are being
  // asked already, asks once more after that.
  void LookForNewStart();
  void LookEnded();
  // Asks a rank of `to` for the topology, once, and meets what it says. Calls `ended` with its server
  // instance then, or with 0 if it says none within `limit`.
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
  std::mutex meeting_;                               // of Meet
  std::atomic<std::uint64_t> instance_ = 0;  // set under meeting_: of the server that channels_ lead to

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  client::ServerLimits limits_;
  std::map<std::string, TableOptions, std::less<>> tables_;
  int questions_ = 0;  // for the topology, that are under way
  bool look_again_ = false;
  std::size_t looks_ = 0;
  std::shared_ptr<Learning> learning_;             // null: no call waits
  std::shared_ptr<client::Connections> to_seeds_;  // made when first needed

  client::Runs runs_{channels_};
  client::Channels channels_;  // last, so that its threads end before the members they use
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_CPP_CLIENT_IMPL_H_
