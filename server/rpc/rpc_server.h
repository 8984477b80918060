// RpcServer is the gRPC server of one rank, with Slotwise's services, the health service and reflection.
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
  std::string host = "127.0.0.1";                             // in gRPC's form: an IPv6 address has brackets
  std::uint16_t port = 0;                                     // 0: any free port
  std::uint64_t max_message_bytes = std::uint64_t{64} << 20;  // larger requests are RESOURCE_EXHAUSTED
  std::uint64_t max_round_bytes = std::uint64_t{512} << 20;   // the engine's limit, reported to clients
  // The Unix socket for clients of this host: a name of the abstract namespace; empty: there is none.
  std::string local = {};
  std::uint64_t max_shared_bytes = std::uint64_t{1} << 30;  // of host memory; further clients share none
  std::uint64_t max_device_shared_bytes = std::uint64_t{1} << 30;  // the same for device memory
  std::uint32_t max_connections = 4096;                            // further ones are closed at once
  std::uint32_t max_calls_per_connection = 256;                    // gRPC's clients hold further calls back
  // Open gRPC calls on all connections together, at least four times the number above. A connection that
  // exceeds either limit is ended (open_calls.h).
  std::uint32_t max_calls = 16'384;
  // Bytes that are received and not decoded may take about twice as much, exports a quarter of it.
  std::uint64_t max_queue_bytes = std::uint64_t{1} << 30;
  // A caller that has not read its reply after this time is cut off.
  std::chrono::milliseconds reply_timeout{30'000};
  std::chrono::milliseconds hello_timeout = kHelloTimeout;
  // Health checks are answered NOT_SERVING while the engine has been in one round for this long.
  std::chrono::milliseconds engine_timeout{10'000};
  // Applies to calls without a deadline of their own. It is longer than a step may wait for its parts, so
  // that the caller of such a push hears the step's outcome.
  std::chrono::milliseconds default_deadline{90'000};
  TlsFiles tls = {};
  // Identifies callers and their rights; null: everybody may do everything. Outlives the server.
  const AccessControl* access = nullptr;
  // Called, from any thread, whenever the health service begins to report that the server serves, or that it
  // does not.
  std::function<void(bool serves)> on_serving = [](bool) {};

  // Returns whether the port speaks the data transport, which has no authentication and no encryption there.
  bool speaks_data() const { return !tls.on() && (access == nullptr || access->open()); }
  // Returns whether the Unix socket speaks the data transport. There it asks for tokens if there are
  // principals, but never for certificates, so not if a certificate alone admits a caller.
  bool speaks_data_locally() const {
    return speaks_data() || (access != nullptr && !access->open()) || tls.client_ca_file.empty();
  }
};

class RpcServer {
 public:
  // Listens. Until Open, the server answers every call UNAVAILABLE and health checks NOT_SERVING. `engine`
  // outlives the server. FAILED_PRECONDITION, in one sentence with the address and the reason: the server
  // cannot listen there.
  static Result<std::unique_ptr<RpcServer>> Start(const RpcOptions& options, Engine& engine);
  // Shuts down without a grace period, unless Shutdown was called.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Returns the port at which the server listens.
  std::uint16_t port() const;

  // Returns the rank's counters. Any thread; never waits.
  RankStats Stats() const;

  // Serves calls from now on, and reports SERVING, except while the engine is stuck.
  void Open(Topology topology);

  // Reports NOT_SERVING, waits at most `grace` until calls under way are answered, and then accepts no more
  // calls. REQUIRES: the engine answers, or has answered, all submitted requests.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_RPC_SERVER_H_
