// The ranks agree on the start: all serve, or none does. The first rank that has a reason not to serve logs
// the reason, as one sentence.
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

// Returns whether all ranks are ready and alike. `mine` is a fingerprint of this rank's configuration and
// version.
bool AllReady(Collective& collective, const Result<std::uint64_t>& mine);

// Returns every rank's place, in rank order, or nothing if a rank has no place.
std::optional<std::vector<RankPlace>> AgreeOnPlaces(Collective& collective, const Result<RankPlace>& mine);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_START_UP_H_
