// Small batches of lookups travel with their proposals, in the bytes of the header that proposals
// leave. A round that serves nothing else, in the decision that it was proposed for, gathers no batch.
//
// Thread-safety: plain values. The headers outlive what is found in them.
#ifndef SLOTWISE_SERVER_ENGINE_CARRIED_BATCHES_H_
#define SLOTWISE_SERVER_ENGINE_CARRIED_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/engine/batch_part.h"
#include "server/engine/schedule/pending_requests.h"
#include "server/engine/schedule/proposal.h"
#include "server/engine/schedule/round.h"

namespace slotwise {

// Puts into the header the batches of its proposals that are small enough, in their order. REQUIRES:
// nothing more is proposed in it. `tickets` has this rank's requests.
void CarryBatches(Header& header, PendingRequests& tickets);

// Returns how many bytes of the header, from the first on, mean something.
std::size_t UsedBytes(const Header& header);

class CarriedBatches {
 public:
  CarriedBatches() = default;
  // What the ranks have told each other for one decision, by rank.
  explicit CarriedBatches(std::span<const Header> headers) : headers_(headers) {}

  // Whether the part's batch is here: the same on every rank.
  bool Has(const RoundPart& part) const { return Find(part) != nullptr; }

  // A part's arrays: its keys, offsets but for the last, and weights if the part has any; at multiples of 8
  // bytes, or 4.
  struct Arrays {
    const std::byte* keys;
    const std::byte* offsets;
    const std::byte* weights;
  };
  // REQUIRES: Has(part).
  Arrays Of(const RoundPart& part, std::size_t bags) const;

 private:
  // The part's proposal, if it has the batch; else null.
  const Proposal* Find(const RoundPart& part) const;

  std::span<const Header> headers_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CARRIED_BATCHES_H_
