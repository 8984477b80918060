// The ranks' agreement to start: all serve, or none does.
// Thread-safety: free functions, for one thread.
#ifndef SLOTWISE_SERVER_START_UP_H_
#define SLOTWISE_SERVER_START_UP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/collective/collective.h"
#include "server/rpc/topology.h"
#include "slotwise/status.h"

namespace slotwise {

// What a rank brings to the agreement.
struct ReadyRank {
  RankPlace place;
  std::uint64_t fingerprint = 0;  // of its configuration and version
};

// Collective. Every rank's place, in rank order; or nothing, if some rank is not ready or the fingerprints differ.
// Each different reason is logged as one sentence, by the first rank that has it.
std::optional<std::vector<RankPlace>> AgreeToStart(Collective& collective, const Result<ReadyRank>& mine);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_START_UP_H_
