#include "server/collective/exchange.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/collective/nccl.h"

namespace slotwise {
namespace {

// Each rank sends its offer to all ranks.
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

// Returns "" if all ranks can use NCCL together, which refuses two ranks on one GPU, and two versions.
std::string WhyNoNccl(std::span<const Offer> offers) {
  std::vector<std::array<char, 16>> gpus;
  for (std::size_t r = 0; r < offers.size(); ++r) {
    const NcclOffer& offer = offers[r].nccl;
    const std::string rank = "rank " + std::to_string(r);
    if (offer.version == 0) return rank + " has no NCCL, or too old a one";
    if (offer.version != offers[0].nccl.version) return rank + " has another NCCL than rank 0";
    if (std::ranges::count(gpus, offer.gpu) > 0) return rank + " shares its GPU";
    gpus.push_back(offer.gpu);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Exchange>> MakeExchange(Device& device, Stream& stream, Collective& collective,
                                               const ExchangeOptions& options) {
  if (collective.size() == 1) return MakeSoloExchange(stream);
  const std::vector<Offer> offers = AllGatherValues(collective, Offer{device.Ordinal(), OfferOf(device)});
  const auto gpus = std::ranges::count(offers, true, &Offer::has_gpu);
  if (gpus > 0 && gpus < collective.size()) {
    return FailedPrecondition(Named(offers, true) + " has a GPU and " + Named(offers, false) +
                              " has none: a server's ranks run all on GPUs or all on CPUs (--backend cpu)");
  }
  if (gpus == 0) return MakeMpiExchange(device, stream, collective);
  const std::string why_not = WhyNoNccl(offers);
  if (why_not.empty()) return MakeNcclExchange(device, stream, collective, options);
  return MakeMpiExchange(device, stream, collective, why_not);
}

Result<Exchanges> Exchanges::Make(Device& device, Collective& collective, const ExchangeOptions& options) {
  Exchanges made;
  made.batches_stream_ = device.MakeStream();
  made.bags_stream_ = device.MakeStream();
  auto batches = MakeExchange(device, *made.batches_stream_, collective, options);
  if (!batches.ok()) return batches.status();
  auto bags = MakeExchange(device, *made.bags_stream_, collective, options);
  if (!bags.ok()) return bags.status();
  made.batches_ = std::move(*batches);
  made.bags_ = std::move(*bags);
  return made;
}

Exchanges Exchanges::Of(std::unique_ptr<Stream> batches_stream, std::unique_ptr<Exchange> batches,
                        std::unique_ptr<Stream> bags_stream, std::unique_ptr<Exchange> bags) {
  Exchanges made;
  made.batches_stream_ = std::move(batches_stream);
  made.bags_stream_ = std::move(bags_stream);
  made.batches_ = std::move(batches);
  made.bags_ = std::move(bags);
  return made;
}

ExchangeStats Exchanges::Durations() const {
  ExchangeStats durations = batches_->Durations();
  const ExchangeStats of_bags = bags_->Durations();
  for (std::size_t i = 0; i < durations.size(); ++i) durations[i].Add(of_bags[i]);
  return durations;
}

Exchanges Exchanges::MakeSolo(Device& device) {
  Exchanges made;
  made.batches_stream_ = device.MakeStream();
  made.bags_stream_ = device.MakeStream();
  made.batches_ = MakeSoloExchange(*made.batches_stream_);
  made.bags_ = MakeSoloExchange(*made.bags_stream_);
  return made;
}

}  // namespace slotwise
