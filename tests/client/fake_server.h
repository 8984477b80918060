// FakeServer is a server of several ranks in this process that answers the real protocol, keeps a log, and
// fails when told.
//
// It has one table, "ads", with dim 2 and one slot. A key's row is always (key, -key), even after pushes. A
// step is applied when all its parts have come. Thread-safety: any thread.
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

  // Called before a call is served, from many threads; a status other than OK becomes the call's answer.
  // `method` is for example "Lookup".
  using Fault = std::function<grpc::Status(std::size_t rank, const std::string& method,
                                           const google::protobuf::Message& request)>;
  Fault before;
  // Makes a fault that refuses the first `times` calls of a method.
  static Fault FailFirst(int times, const std::string& method, grpc::StatusCode code);
  // Returns the answer of a server that refuses with `status`.
  static grpc::Status Refusal(const Status& status);
  // Sets whether GetTopology says that every refusal has a reason.
  bool gives_reasons = false;
  // Makes a fault that refuses the first `times` pushes because of an unknown session.
  static Fault ForgetSessions(int times);
  // The retry time in a refusal's metadata; empty: none. It is set before the first call.
  std::string retry_after;
  std::atomic<std::uint64_t> epoch{0};  // in GetTopology's answer
  // Calls `spoiler` on each later lookup's reply before it is sent; null ends this.
  using Spoiler = std::function<void(v1::LookupReply&)>;
  void Spoil(Spoiler spoiler);

  const std::vector<std::string>& addresses() const { return addresses_; }
  void StopRank(std::size_t rank);
  // From now on every rank says that the server was restarted as this instance, at these addresses, and
  // answers as that instance. `max_message_bytes` is its new limit of requests; 0: as before.
  void SayThatItIs(std::uint64_t instance, std::vector<std::string> addresses,
                   std::uint64_t max_message_bytes = 0);

  // The replies of ListEvicted, one after another, and its requests. Set and read while no call is under way.
  std::vector<v1::ListEvictedReply> evicted_pages;
  std::vector<v1::ListEvictedRequest> evicted_requests;

  // Makes a fault's call hang. Returns after Release, or when the server is destroyed.
  void Hang();
  // Makes a fault that hangs in every call of a method.
  Fault HangIn(const std::string& method);
  void Release();

  struct LoggedLookup {
    std::size_t rank = 0;
    v1::LookupRequest request;
    std::chrono::system_clock::duration left{};  // the rest of the call's timeout when it arrived
  };
  struct LoggedPush {
    std::size_t rank = 0;
    v1::PushRequest request;
  };
  std::vector<LoggedLookup> lookups();
  std::vector<LoggedPush> pushes();
  int calls(const std::string& method);
  // Returns once a method was called `times` times. Fails the test after a minute.
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
