// CarriedBatches: small batches of lookups travel in the header, in the bytes that the proposals leave free.
// A round of such lookups alone, decided on by these headers, needs no gather of batches.
//
// Thread-safety: plain values. The headers outlive pointers into them.
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

// Adds the small enough batches of the header's proposals to the header, in their order. `tickets` has this
// rank's requests. REQUIRES: the header has all of its proposals.
void CarryBatches(Header& header, PendingRequests& tickets);

// Returns how many bytes of the header are in use, from the first on.
std::size_t UsedBytes(const Header& header);

class CarriedBatches {
 public:
  CarriedBatches() = default;
  // `headers` are one decision's, by rank.
  explicit CarriedBatches(std::span<const Header> headers) : headers_(headers) {}

  // Returns whether the headers have the part's batch. The same on every rank.
  bool Has(const RoundPart& part) const { return Find(part) != nullptr; }

  // A part's arrays: keys, at a multiple of 8 bytes; offsets without the last one, and weights if the part
  // has any, at multiples of 4.
  struct Arrays {
    const std::byte* keys;
    const std::byte* offsets;
    const std::byte* weights;
  };
  // REQUIRES: Has(part).
  Arrays Of(const RoundPart& part, std::size_t bags) const;

 private:
  // Returns the part's proposal if the header has its batch, otherwise null.
  const Proposal* Find(const RoundPart& part) const;

  std::span<const Header> headers_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CARRIED_BATCHES_H_
