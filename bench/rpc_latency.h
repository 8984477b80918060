// RpcLatency is how long one call waits: a lookup of one sample, and a call that asks for nothing, which
// shows what the transport itself takes.
// Thread-safety: one thread at a time. Throws std::runtime_error if a call is refused.
#ifndef SLOTWISE_BENCH_RPC_LATENCY_H_
#define SLOTWISE_BENCH_RPC_LATENCY_H_

#include <string>
#include <vector>

#include "slotwise/client.h"

namespace slotwise::bench {

struct RpcLatency {
  std::vector<double> empty;  // seconds of each call
  std::vector<double> lookup;
};

// Makes `calls` calls of each kind by turns, one at a time. `table` has slots and keys of RpcTraffic's.
RpcLatency MeasureLatency(Client& client, TransportKind transport, const std::string& table,
                          std::uint32_t hot, int calls);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_RPC_LATENCY_H_
