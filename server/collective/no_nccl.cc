// Offers no NCCL: a build without CUDA or NCCL's header has this file in the place of nccl_exchange.cc.
#include <stdexcept>

#include "server/collective/nccl.h"

namespace slotwise {

NcclOffer OfferOf(const Device& /*device*/) { return {}; }

std::unique_ptr<Exchange> MakeNcclExchange(Device& /*device*/, Stream& /*stream*/, Collective& /*collective*/,
                                           const ExchangeOptions& /*options*/) {
  throw std::runtime_error("this build of Slotwise has no NCCL");
}

}  // namespace slotwise
