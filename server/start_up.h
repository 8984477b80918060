// The ranks agree on the start: all serve, or none does. The first rank that cannot serve logs the reason in
// one sentence.
// Thread-safety: free functions, for one thread. All are collective.
#ifndef SLOTWISE_SERVER_START_UP_H_
#define SLOTWISE_SERVER_START_UP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/collective/collective.h"
#include "server/rpc/topology.h"
#include "slotwise/status.h"

namespace slotwise {

// Returns whether all ranks are ready and agree. `mine` is the fingerprint of this rank's configuration and
// version, or the reason why it is not ready.
bool AllReady(Collective& collective, const Result<std::uint64_t>& mine);

// Returns every rank's place, in rank order; nothing if a rank has none.
std::optional<std::vector<RankPlace>> AgreeOnPlaces(Collective& collective, const Result<RankPlace>& mine);

// Distinguishes one start of a server from all others.
struct Instance {
  std::uint64_t id = 0;
  // The first epoch of sessions (ledger.h): later than any epoch of an earlier start of this server, if the
  // clock was not set back.
  std::uint64_t first_epoch = 0;
};

// Returns 64 hexadecimal digits that rank 0 has drawn, on every rank, by which ranks know each other. Throws
// std::exception if the system gives no random numbers.
std::string DrawPeersToken(Collective& collective);

// Returns the instance that rank 0 has drawn, on every rank. Throws std::exception if the system gives no
// random numbers.
Instance DrawInstance(Collective& collective);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_START_UP_H_
