// The ranks' agreement to start: all serve, or none does.
// Each different reason why not is logged as one sentence, by the first rank that has it.
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

// Whether all ranks are ready, and alike: `mine` is a fingerprint of this rank's configuration and version.
bool AllReady(Collective& collective, const Result<std::uint64_t>& mine);

// Every rank's place, in rank order; or nothing, if some rank has none.
std::optional<std::vector<RankPlace>> AgreeOnPlaces(Collective& collective, const Result<RankPlace>& mine);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_START_UP_H_
