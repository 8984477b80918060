// The Exchange over NCCL moves arrays from GPU to GPU, over NVLink or the network, on the CUDA stream.
//
// The first call of one of these functions loads NCCL, if this machine has it: the same binary runs without.
// NCCL's own environment variables (NCCL_DEBUG, NCCL_SOCKET_IFNAME and so on) hold.
// Thread-safety: free functions, for the thread that made the device.
#ifndef SLOTWISE_SERVER_COLLECTIVE_NCCL_H_
#define SLOTWISE_SERVER_COLLECTIVE_NCCL_H_

#include <array>
#include <memory>

#include "server/collective/exchange.h"

namespace slotwise {

// Ranks must know these values of each other to use NCCL together.
struct NcclOffer {
  int version = 0;  // as NCCL counts: 22803 is 2.28.3; 0: no NCCL, too old, no GPU, or a build without
  std::array<char, 16> gpu{};  // the GPU's UUID
};
NcclOffer OfferOf(const Device& device);

// Collective. REQUIRES: all ranks' offers have the same version, not 0, and each rank has its own GPU.
std::unique_ptr<Exchange> MakeNcclExchange(Device& device, Stream& stream, Collective& collective,
                                           const ExchangeOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_NCCL_H_
