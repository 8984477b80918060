// Makes the rooms of one rank: everything between its configuration and its listening port.
// Thread-safety: free functions, for one thread.
#ifndef SLOTWISE_SERVER_ROOMS_H_
#define SLOTWISE_SERVER_ROOMS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/hash_secret.h"
#include "kernels/shard.h"
#include "server/access/access_control.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/collective/heartbeat.h"
#include "server/durability/folder_lock.h"
#include "server/engine/engine.h"
#include "server/flags.h"
#include "server/ops/disk_space.h"
#include "server/ops/http_port.h"
#include "server/ops/metrics_peers.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/topology.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// Members are destroyed from last to first, so that none outlives the members that it uses.
struct Rooms {
  v1::ServerConfig config;
  std::optional<FolderLock> data;    // rank 0's, of the data folder
  std::vector<TableOptions> tables;  // the configuration's tables, not made yet
  std::unique_ptr<Device> device;
  std::optional<HashSecret> secret;      // drawn by this process
  std::unique_ptr<Heartbeat> heartbeat;  // null on a single rank
  std::optional<Exchanges> exchanges;
  std::unique_ptr<AccessControl> access;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RpcServer> rpc;
  std::shared_ptr<MetricsPeers> peers;
  std::optional<DiskSpace> disk;      // of the data folder, if there is one and metrics are served
  std::unique_ptr<HttpPort> metrics;  // null: not served
  std::atomic<bool> serves = false;   // as the health service reports
  std::unique_ptr<HttpPort> health;   // null: not served
};

// Returns whether a rank on this host keeps its tables on a GPU. BACKEND_AUTO: if the host has a GPU.
bool UsesGpu(v1::Backend backend);

// Does the part of the start that needs no other rank: reads the configuration, sets up the log, makes the
// device, draws the secret of its hash tables. Returns the fingerprint of the settings that all ranks must
// share. An error has one sentence per line, for the operator.
Result<std::uint64_t> GetReady(const Flags& flags, const Collective& collective, Rooms& rooms);

// Called from another thread when a rank is lost.
using LostRank = std::function<void(const std::string& why)>;

// Collective; called once all ranks are ready. Makes the remaining members of `rooms`, and listens. `lost`
// may be called from then on. An error is one sentence for the operator. `collective` outlives `rooms`.
Result<RankPlace> Connect(Collective& collective, const LostRank& lost, Rooms& rooms);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ROOMS_H_
