// What one rank makes before it knows of the others: everything between its configuration and its listening port.
// Thread-safety: free functions, for one thread.
#ifndef SLOTWISE_SERVER_ROOMS_H_
#define SLOTWISE_SERVER_ROOMS_H_

#include <memory>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/engine/engine.h"
#include "server/flags.h"
#include "server/ops/config.h"
#include "server/rpc/rpc_server.h"
#include "server/start_up.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Destroyed from the last member to the first: nobody outlives what it uses.
struct Rooms {
  std::vector<TableOptions> tables;  // of the configuration, to be made
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RpcServer> rpc;
};

// The configuration's tables. INVALID_ARGUMENT, with the table's place in the file.
Result<std::vector<TableOptions>> TablesOf(const Config& config);

// Reads the configuration, sets up the log, makes `rooms`, and listens. An error is one sentence for the operator.
// `collective` outlives `rooms`.
Result<ReadyRank> GetReady(const Flags& flags, Collective& collective, Rooms& rooms);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ROOMS_H_
