// GatherManifest: the ranks tell each other what they wrote of a checkpoint.
#ifndef SLOTWISE_SERVER_ENGINE_GATHERED_MANIFEST_H_
#define SLOTWISE_SERVER_ENGINE_GATHERED_MANIFEST_H_

#include "server/collective/collective.h"
#include "server/durability/manifest.h"
#include "server/engine/checkpoint_job.h"
#include "slotwise/status.h"

namespace slotwise {

// Collective. `manifest` has all but what ranks wrote, its `created` is rank 0's, and `result` is what this
// rank did. Returns the whole manifest, on every rank, or what failed on the first rank that failed:
// RESOURCE_EXHAUSTED if its disk was full, else INTERNAL.
Result<Manifest> GatherManifest(Collective& collective, Manifest manifest, const Result<WrittenPart>& result);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_GATHERED_MANIFEST_H_
