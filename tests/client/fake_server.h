// FakeServer is a server of several ranks in this process that answers the real protocol, keeps a log, and
// fails when told.
//
// It has one table, "ads", with dim 2 and one slot. A key's row is (key, -key), whatever is pushed. A step is
// applied when all its parts have come. Thread-safety: safe from any thread.
#ifndef SLOTWISE_TESTS_CLIENT_FAKE_SERVER_H_
#define SLOTWISE_TESTS_CLIENT_FAKE_SERVER_H_

#include <grpcpp/server.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "slotwise/status.h"
#include "slotwise/v1/admin.grpc.pb.h"
#include "slotwise/v1/embedding.grpc.pb.h"
#include "slotwise/v1/rows.grpc.pb.h"

namespace slotwise {

class FakeServer {
 public:
  explicit FakeServer(std::size_t ranks = 2, std::uint64_t max_message_bytes = 64 << 20);
  ~FakeServer();

  // Called before a call is served, from many threads; a status other than OK is the call's answer. `method`
  // is for example "Lookup".
  using Fault = std::function<grpc::Status(std::size_t rank, const std::string& method,
                                           const google::protobuf::Message& request)>;
  Fault before;
  // Makes a fault that refuses the first `times` calls of a method.
  static Fault FailFirst(int times, const std::string& method, grpc::StatusCode code);
  // Returns what a server answers that refuses with `status`.
  static grpc::Status Refusal(const Status& status);
  // Whether GetTopology says that every refusal has a reason.
  bool gives_reasons = false;
  // Makes a fault that refuses the first `times` pushes, because it does not know the session.
  static Fault ForgetSessions(int times);
  // What refusals say in their metadata of when to try again; empty: nothing. Set before the first call.
  std::string retry_after;
  std::atomic<std::uint64_t> epoch{0};  // what GetTopology says
  // From now on, calls `spoiler` on each lookup's reply before it is sent; null ends that.
  using Spoiler = std::function<void(v1::LookupReply&)>;
  void Spoil(Spoiler spoiler);

  const std::vector<std::string>& addresses() const { return addresses_; }
  void StopRank(std::size_t rank);
  // From now on every rank says that the server was started again, as this one, and answers as it.
  // `max_message_bytes`: what it says that requests may have; 0: as before.
  void SayThatItIs(std::uint64_t instance, std::vector<std::string> addresses,
                   std::uint64_t max_message_bytes = 0);

  // Faults call Hang to make a call hang. Hang returns after Release, or when the server is destroyed.
  void Hang();
  // Makes a fault by which every call of a method hangs.
  Fault HangIn(const std::string& method);
  void Release();

  struct LoggedLookup {
    std::size_t rank = 0;
    v1::LookupRequest request;
    std::chrono::system_clock::duration left{};  // of the call's timeout as the server began with it
  };
  struct LoggedPush {
    std::size_t rank = 0;
    v1::PushRequest request;
  };
  std::vector<LoggedLookup> lookups();
  std::vector<LoggedPush> pushes();
  int calls(const std::string& method);
  // Returns once a method was called `times` times; fails the test after a minute without.
  void AwaitCalls(const std::string& method, int times);

 private:
  template <class Base>
  class Service;
  class Admin;
  class Embedding;
  class Rows;
  struct Rank {
    std::unique_ptr<Admin> admin;
    std::unique_ptr<Embedding> embedding;
    std::unique_ptr<Rows> rows;
    std::unique_ptr<grpc::Server> server;
  };

  std::uint64_t instance();
  grpc::Status Enter(grpc::ServerContext& context, std::size_t rank, const std::string& method,
                     const google::protobuf::Message& request);
  grpc::Status TakePart(grpc::ServerContext& context, const v1::PushRequest& request);

  std::atomic<std::uint64_t> max_message_bytes_;
  std::vector<std::string> addresses_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool released_ = false;
  Spoiler spoiler_;
  std::uint64_t instance_ = 1;
  std::vector<std::string> said_addresses_;  // empty: its own
  std::vector<std::string> calls_;
  std::vector<LoggedLookup> lookups_;
  std::vector<LoggedPush> pushes_;
  std::set<std::uint32_t> parts_;

  std::vector<Rank> ranks_;  // last, so that the servers end first
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_CLIENT_FAKE_SERVER_H_
