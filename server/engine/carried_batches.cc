#include "server/engine/carried_batches.h"

#include <cstring>
#include <utility>

namespace slotwise {
namespace {

std::size_t PlaceOfCarried(const Header& header) {
  return offsetof(Header, proposals) + header.count * sizeof(Proposal);
}

}  // namespace

std::size_t UsedBytes(const Header& header) { return PlaceOfCarried(header) + header.carried_bytes; }

void CarryBatches(Header& header, PendingRequests& tickets) {
  static_assert(offsetof(Header, proposals) % 8 == 0 && sizeof(Proposal) % 8 == 0);
  auto* const bytes = reinterpret_cast<std::byte*>(&header);
  for (std::size_t i = 0; i < header.count; ++i) {
    Proposal& proposal = header.proposals[i];
    if (proposal.operation_class != OperationClass::kLookup) continue;
    const BatchPart& part = tickets.BatchOf(proposal.ticket);
    const std::size_t offsets = part.offsets.bytes() - sizeof(std::uint32_t);
    const std::size_t all = (part.keys.bytes() + offsets + part.weights.bytes() + 7) / 8 * 8;
    const std::size_t used = UsedBytes(header);
    if (part.memory == MemoryKind::kDevice || all > sizeof(Header) - used) continue;
    proposal.carried = true;
    proposal.carried_at = static_cast<std::uint16_t>(used);
    static_assert(sizeof(Header) <= 0xffff);
    std::byte* to = bytes + used;
    for (const auto& [from, size] : {std::pair<const void*, std::size_t>{part.keys.data(), part.keys.bytes()},
                                     {part.offsets.data(), offsets},
                                     {part.weights.data(), part.weights.bytes()}}) {
      if (size > 0) std::memcpy(to, from, size);
      to += size;
    }
    header.carried_bytes += static_cast<std::uint32_t>(all);
  }
}

// A header's tickets are numbers that follow each other.
const Proposal* CarriedBatches::Find(const RoundPart& part) const {
  const auto rank = static_cast<std::size_t>(Value(part.ticket.rank));
  if (rank >= headers_.size() || headers_[rank].count == 0) return nullptr;
  const Header& header = headers_[rank];
  const TicketNumber place = part.ticket.number - header.proposals[0].ticket;
  if (place >= header.count || !header.proposals[place].carried) return nullptr;
  return &header.proposals[place];
}

CarriedBatches::Arrays CarriedBatches::Of(const RoundPart& part, std::size_t bags) const {
  const Header& header = headers_[static_cast<std::size_t>(Value(part.ticket.rank))];
  const std::byte* const keys = reinterpret_cast<const std::byte*>(&header) + Find(part)->carried_at;
  const std::byte* const offsets = keys + part.keys * sizeof(Key);
  return {keys, offsets, offsets + bags * sizeof(std::uint32_t)};
}

}  // namespace slotwise
