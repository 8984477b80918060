// GatherManifest: gathers the ranks' parts of a checkpoint into one manifest.
#ifndef SLOTWISE_SERVER_ENGINE_GATHERED_MANIFEST_H_
#define SLOTWISE_SERVER_ENGINE_GATHERED_MANIFEST_H_

#include "server/collective/collective.h"
#include "server/durability/manifest.h"
#include "server/engine/checkpoint_job.h"
#include "slotwise/status.h"

namespace slotwise {

// Collective. `manifest` has all fields but the ranks' parts, and rank 0's `created` counts; `result` is this
// rank's part, or its error. Returns the whole manifest on every rank, or the error of the first rank that
// failed: RESOURCE_EXHAUSTED if its disk was full, otherwise INTERNAL.
Result<Manifest> GatherManifest(Collective& collective, Manifest manifest, const Result<WrittenPart>& result);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_GATHERED_MANIFEST_H_
