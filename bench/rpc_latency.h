// RpcLatency is the time of one call: of a lookup of one sample, and of an empty call, which shows the
// transport's own time.
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

// Makes `calls` calls of each kind in turn, one at a time. `table` has the slots and keys of RpcTraffic.
RpcLatency MeasureLatency(Client& client, TransportKind transport, const std::string& table,
                          std::uint32_t hot, int calls);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_RPC_LATENCY_H_
