// Exchange over NCCL: from GPU to GPU, over NVLink or the network, on the stream's stream.
//
// NCCL is loaded when the first of these is called, if this machine has it: the same binary runs without. Its
// own environment variables (NCCL_DEBUG, NCCL_SOCKET_IFNAME and so on) hold.
// Thread-safety: free functions, for the thread that made the device.
#ifndef SLOTWISE_SERVER_COLLECTIVE_NCCL_H_
#define SLOTWISE_SERVER_COLLECTIVE_NCCL_H_

#include <array>
#include <memory>

#include "server/collective/exchange.h"

namespace slotwise {

// What ranks must know of each other to use NCCL together.
struct NcclOffer {
  int version = 0;  // as NCCL counts: 22803 is 2.28.3; 0: none, too old, no GPU, or a build without it
  std::array<char, 16> gpu{};  // its UUID, unlike any other's anywhere
};
NcclOffer OfferOf(const Device& device);

// Collective. REQUIRES: all ranks' offers have the same version, not 0, and GPUs of their own.
std::unique_ptr<Exchange> MakeNcclExchange(Device& device, Stream& stream, Collective& collective,
                                           const ExchangeOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_NCCL_H_
