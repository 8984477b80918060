// What one rank is made of: everything between its configuration and its listening port.
// Thread-safety: free functions, for one thread.
#ifndef SLOTWISE_SERVER_ROOMS_H_
#define SLOTWISE_SERVER_ROOMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/engine.h"
#include "server/flags.h"
#include "server/ops/config.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/topology.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Destroyed from the last member to the first: nobody outlives what it uses.
struct Rooms {
  v1::ServerConfig config;
  std::vector<TableOptions> tables;  // of the configuration, to be made
  std::unique_ptr<Device> device;
  std::optional<Exchanges> exchanges;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RpcServer> rpc;
};

// The configuration's tables. INVALID_ARGUMENT, with the table's place in the file.
Result<std::vector<TableOptions>> TablesOf(const Config& config);

// What a rank does alone: reads the configuration, sets up the log, takes its device. The fingerprint of what all ranks
// must have in common. An error is one sentence for the operator.
Result<std::uint64_t> GetReady(const Flags& flags, const Collective& collective, Rooms& rooms);

// Collective, once all are ready. Makes the rest of `rooms`, and listens. An error is one sentence for the operator.
// `collective` outlives `rooms`.
Result<RankPlace> Connect(Collective& collective, Rooms& rooms);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ROOMS_H_
