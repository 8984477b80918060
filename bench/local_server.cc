#include "bench/local_server.h"

#include <sched.h>
#include <unistd.h>

#include "bench/common_options.h"

namespace slotwise::bench {

int KeepToProcessors(int most) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return most;
  cpu_set_t kept;
  CPU_ZERO(&kept);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&kept) < most; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &kept);
  }
  sched_setaffinity(0, sizeof(kept), &kept);
  return CPU_COUNT(&kept);
}

LocalServer::LocalServer(Device& device) : device_(device) {
  RpcOptions options;
  options.max_device_shared_bytes = std::uint64_t{16} << 30;  // a client gets a quarter
  options.local = "slotwise-bench-" + std::to_string(getpid());
  rpc_ = Must(RpcServer::Start(options, engine_), "no server");
  address_ = "127.0.0.1:" + std::to_string(rpc_->port());
  rpc_->Open({.version = "bench",
              .ranks = {{address_, device.Name(), options.local, device.Uuid()}},
              .rank = Rank{0}});
  run_ = std::thread([this] { engine_.Run(); });
}

LocalServer::~LocalServer() {
  engine_.RequestStop();
  run_.join();
  rpc_.reset();
}

}  // namespace slotwise::bench
