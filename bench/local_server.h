// LocalServer: a server in this process, for benchmarks of clients. Both use the same processors.
#ifndef SLOTWISE_BENCH_LOCAL_SERVER_H_
#define SLOTWISE_BENCH_LOCAL_SERVER_H_

#include <memory>
#include <string>
#include <thread>

#include "bench/common_options.h"
#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/engine.h"
#include "server/rpc/rpc_server.h"

namespace slotwise::bench {

// Restricts this process and its children to the first `most` processors that they may use. Returns the
// number of processors that they then have.
int KeepToProcessors(int most);

// Runs one rank, at a free port of 127.0.0.1.
class LocalServer {
 public:
  // REQUIRES: `device` outlives this. Throws std::runtime_error if the server cannot start.
  explicit LocalServer(Device& device);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  const std::string& address() const { return address_; }

 private:
  Device& device_;
  std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  Exchanges exchanges_ = Exchanges::MakeSolo(device_);
  Engine engine_{device_, *collective_, exchanges_, kBenchSecret, {}};
  std::unique_ptr<RpcServer> rpc_;
  std::string address_;
  std::thread run_;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_LOCAL_SERVER_H_
