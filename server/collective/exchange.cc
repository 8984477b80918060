#include "server/collective/exchange.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/collective/nccl.h"

namespace slotwise {
namespace {

// What a rank can offer, as all ranks are told.
struct Offer {
  int ordinal = -1;
  NcclOffer nccl;
  bool has_gpu() const { return ordinal >= 0; }
};
static_assert(std::is_trivially_copyable_v<Offer>);

std::string Named(std::span<const Offer> offers, bool has_gpu) {
  const auto found = std::ranges::find(offers, has_gpu, &Offer::has_gpu);
  return "rank " + std::to_string(found - offers.begin());
}

// NCCL refuses two ranks on one GPU, and two versions of itself.
bool AllCanUseNccl(std::span<const Offer> offers) {
  std::vector<std::array<char, 16>> gpus;
  for (const Offer& offer : offers) {
    if (offer.nccl.version == 0 || offer.nccl.version != offers[0].nccl.version) return false;
    gpus.push_back(offer.nccl.gpu);
  }
  std::ranges::sort(gpus);
  return std::ranges::adjacent_find(gpus) == gpus.end();
}

}  // namespace

Result<std::unique_ptr<Exchange>> MakeExchange(Device& device, Lane& lane, Collective& collective,
                                               const ExchangeOptions& options) {
  if (collective.size() == 1) return MakeSoloExchange(lane);
  const Offer mine{device.Ordinal(), OfferOf(device)};
  std::vector<Offer> offers(static_cast<std::size_t>(collective.size()));
  collective.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(offers)));

  const auto gpus = std::ranges::count(offers, true, &Offer::has_gpu);
  if (gpus > 0 && gpus < collective.size()) {
    return FailedPrecondition(Named(offers, true) + " has a GPU and " + Named(offers, false) +
                              " has none: a server's ranks run all on GPUs or all on CPUs (--backend cpu)");
  }
  if (AllCanUseNccl(offers)) return MakeNcclExchange(device, lane, collective, options);
  return MakeMpiExchange(device, lane, collective);
}

Result<Exchanges> Exchanges::Make(Device& device, Collective& collective, const ExchangeOptions& options) {
  Exchanges made;
  made.batches_lane_ = device.MakeLane();
  made.bags_lane_ = device.MakeLane();
  auto batches = MakeExchange(device, *made.batches_lane_, collective, options);
  if (!batches.ok()) return batches.status();
  auto bags = MakeExchange(device, *made.bags_lane_, collective, options);
  if (!bags.ok()) return bags.status();
  made.batches_ = std::move(*batches);
  made.bags_ = std::move(*bags);
  return made;
}

Exchanges Exchanges::MakeSolo(Device& device) {
  Exchanges made;
  made.batches_lane_ = device.MakeLane();
  made.bags_lane_ = device.MakeLane();
  made.batches_ = MakeSoloExchange(*made.batches_lane_);
  made.bags_ = MakeSoloExchange(*made.bags_lane_);
  return made;
}

}  // namespace slotwise
