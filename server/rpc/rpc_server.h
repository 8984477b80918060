// The gRPC server of one rank has Slotwise's three services, the standard health service, and reflection.
// Thread-safety: Open from any thread; the rest from the thread that owns it.
#ifndef SLOTWISE_SERVER_RPC_RPC_SERVER_H_
#define SLOTWISE_SERVER_RPC_RPC_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/access/access_control.h"
#include "server/access/tls_files.h"
#include "server/data/data_server.h"
#include "server/engine/engine.h"
#include "server/rpc/topology.h"
#include "slotwise/server_stats.h"
#include "slotwise/status.h"

namespace slotwise {

struct RpcOptions {
  std::string host = "127.0.0.1";  // as gRPC writes it: an IPv6 address has brackets
  std::uint16_t port = 0;          // 0: any free port
  std::uint64_t max_message_bytes = std::uint64_t{64} << 20;  // larger requests are RESOURCE_EXHAUSTED
  std::uint64_t max_round_bytes = std::uint64_t{512} << 20;   // the engine's, for clients to know
  // Where clients of this host may connect, too: a name of the abstract namespace; empty: nowhere.
  std::string local = {};
  std::uint64_t max_shared_bytes = std::uint64_t{1} << 30;  // with them; clients beyond that share none
  std::uint64_t max_device_shared_bytes = std::uint64_t{1} << 30;  // the same of the device's memory
  std::uint32_t max_connections = 4096;                            // more are closed at once
  std::uint32_t max_calls_per_connection = 256;                    // gRPC's clients hold further calls back
  // Of gRPC, on all connections together: at least four times as many. A connection is ended that opens more
  // than either (open_calls.h).
  std::uint32_t max_calls = 16'384;
  // What is received and not decoded yet takes about twice as much, and exports take a quarter of it.
  std::uint64_t max_queue_bytes = std::uint64_t{1} << 30;
  // A caller that has not taken its reply after this time is cut off.
  std::chrono::milliseconds reply_timeout{30'000};
  std::chrono::milliseconds hello_timeout = kHelloTimeout;
  // Health checks are answered NOT_SERVING while the engine has been at one round for this long.
  std::chrono::milliseconds engine_timeout{10'000};
  // Applies to calls without a deadline of their own. It is longer than a step may wait for its parts, so
  // that the caller of such a push hears the step's outcome.
  std::chrono::milliseconds default_deadline{90'000};
  TlsFiles tls = {};
  // Says who may do what; null: everybody may do everything. It outlives the server.
  const AccessControl* access = nullptr;
  // Is told, from any thread, whenever the health service says something else: that the server serves, or
  // not.
  std::function<void(bool serves)> on_serving = [](bool) {};

  // Returns whether the data transport is spoken at the port, where it does not ask who calls, and encrypts
  // nothing.
  bool speaks_data() const { return !tls.on() && (access == nullptr || access->open()); }
  // Returns whether it is spoken at the Unix socket, where it asks for tokens if there are any, and for
  // nothing else: not where a certificate alone lets somebody in.
  bool speaks_data_locally() const {
    return speaks_data() || (access != nullptr && !access->open()) || tls.client_ca_file.empty();
  }
};

class RpcServer {
 public:
  // Listens. Until Open, the server answers every call UNAVAILABLE and health checks NOT_SERVING. `engine`
  // outlives the server.
  // Returns FAILED_PRECONDITION, in one sentence with the address and the reason, if the server cannot listen
  // there.
  static Result<std::unique_ptr<RpcServer>> Start(const RpcOptions& options, Engine& engine);
  // Shuts down without grace, unless Shutdown was called.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Returns the port that the server listens at.
  std::uint16_t port() const;

  // Returns what the rank has counted. Any thread; does not wait.
  RankStats Stats() const;

  // Serves calls from now on, and reports SERVING, but while the engine is stuck.
  void Open(Topology topology);

  // Reports NOT_SERVING, waits at most `grace` until the calls inside are answered, and then takes no more
  // calls.
  // REQUIRES: the engine answers, or has answered, what was submitted.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_RPC_SERVER_H_
