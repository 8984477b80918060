#include "server/engine/bag_travel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace slotwise {
namespace {

std::vector<std::size_t> Times(std::span<const std::size_t> counts, std::size_t factor) {
  std::vector<std::size_t> products(counts.begin(), counts.end());
  for (std::size_t& product : products) product *= factor;
  return products;
}

}  // namespace

std::size_t TravellingBags::bags() const { return Sum(bags_of); }

double ShareOwned(std::size_t bags, std::size_t keys, std::size_t ranks) {
  if (bags == 0) return 0;
  return 1 - std::pow(1 - 1.0 / static_cast<double>(ranks),
                      static_cast<double>(keys) / static_cast<double>(bags));
}

bool CanTravelAlone(const TravellingBags& bags) {
  const std::size_t ranks = bags.bags_of.size();
  return ranks <= Shard::kMostRanksOfTraffic &&
         ranks * std::ranges::max(bags.bags_of) < std::numeric_limits<std::uint32_t>::max();
}

Way FasterWay(const TravellingBags& bags, const TravelCosts& costs, DataType partials) {
  if (!CanTravelAlone(bags)) return Way::kAllBags;
  // Partial sums there, a part of the bytes of gradients back.
  const double part = static_cast<double>(BytesOf(partials)) / sizeof(float);
  const double all = part * costs.reduce_scatter + costs.all_gather;
  const double owned =
      (part + 1) * (costs.all_to_all + costs.copy) * ShareOwned(bags.bags(), bags.keys, bags.bags_of.size());
  return owned < all ? Way::kOwnedBags : Way::kAllBags;
}

BagTravel::BagTravel(Device& device, Collective& collective, Exchange& exchange, DataType partials,
                     std::optional<Way> way)
    : device_(device),
      collective_(collective),
      exchange_(exchange),
      partials_(collective.size() == 1 ? DataType::kFloat32 : partials),
      given_way_(way) {}

Way BagTravel::Choose(const TravellingBags& bags) const {
  if (given_way_ && CanTravelAlone(bags)) return *given_way_;
  return FasterWay(bags, costs_, partials_);
}

Numbers BagTravel::Reserve(DeviceArray<float>& array, std::size_t count) const {
  return {array.Reserve((count * BytesOf(partials_) + sizeof(float) - 1) / sizeof(float)), partials_};
}

void BagTravel::Pool(Shard& shard, const TravellingBags& bags, Way way, TravelArrays& arrays, float* pooled) {
  Lane& lane = exchange_.lane();
  const Numbers sent = Reserve(arrays.sent, bags.bags() * bags.dim);
  if (way == Way::kAllBags) {
    shard.Pool(sent);
    lane.After(device_.Work());
    return exchange_.ReduceScatter(Times(bags.bags_of, bags.dim), sent, pooled);
  }
  shard.PlanTraffic(bags.bags_of);
  shard.PoolToSend(sent);
  const BagTraffic& traffic = shard.Traffic();  // found out while bags are pooled
  const Numbers received = Reserve(arrays.received, Sum(traffic.received) * bags.dim);
  lane.After(device_.Work());
  exchange_.AllToAll(Times(traffic.owned, bags.dim), sent, Times(traffic.received, bags.dim), received);
  shard.AddReceived(lane, received, pooled);
}

void BagTravel::Update(Shard& shard, const TravellingBags& bags, const float* mine,
                       const StepScalars& scalars, TravelArrays& arrays) {
  Lane& lane = exchange_.lane();
  shard.PlanTraffic(bags.bags_of);
  const BagTraffic& traffic = shard.Traffic();
  float* const sent = arrays.sent.Reserve(Sum(traffic.received) * bags.dim);
  float* const received = arrays.received.Reserve(Sum(traffic.owned) * bags.dim);
  shard.GradientsToSend(mine, sent);
  lane.After(device_.Work());
  exchange_.AllToAll(Times(traffic.received, bags.dim), sent, Times(traffic.owned, bags.dim), received);
  device_.Work().After(lane);
  shard.UpdateFromReceived(received, scalars);
}

// Each operation once to connect the ranks, then several times, of which the fastest was disturbed least.
void BagTravel::Measure() {
  if (collective_.size() == 1) return;
  using Clock = std::chrono::steady_clock;
  constexpr int kRepeats = 5;
  const std::size_t bytes = device_.SharesHostMemory() ? std::size_t{1} << 20 : std::size_t{32} << 20;
  const auto ranks = static_cast<std::size_t>(collective_.size());
  const std::size_t block = bytes / sizeof(float) / ranks;
  const std::vector<std::size_t> sizes(ranks, block);
  TravelArrays arrays(device_);
  float* const from = arrays.sent.Reserve(block * ranks);
  float* const to = arrays.received.Reserve(block * ranks);
  // What no array holds by chance: numbers that processors are slow with.
  const std::vector<float> zeros(block * ranks);
  device_.Upload(from, zeros.data(), zeros.size() * sizeof(float));

  const auto cost = [&](auto operation) {
    std::uint64_t fastest = std::numeric_limits<std::uint64_t>::max();
    for (int i = 0; i <= kRepeats; ++i) {
      const Clock::time_point begin = Clock::now();
      operation();
      device_.Wait();
      const std::chrono::nanoseconds time = Clock::now() - begin;
      if (i > 0) fastest = std::min(fastest, static_cast<std::uint64_t>(time.count()));
    }
    collective_.AllReduceSum({&fastest, 1});
    return static_cast<double>(fastest) * 1e-9 / static_cast<double>(ranks * bytes);
  };
  const std::vector<std::size_t> partial_sizes(ranks, block * sizeof(float) / BytesOf(partials_));
  costs_.reduce_scatter = cost([&] { exchange_.ReduceScatter(partial_sizes, {from, partials_}, to); });
  costs_.all_gather = cost([&] { exchange_.AllGatherBlocks(Times(sizes, sizeof(float)), to); });
  costs_.all_to_all = cost([&] { exchange_.AllToAll(sizes, from, sizes, to); });
  costs_.copy = cost([&] { device_.Work().Copy(to, from, block * ranks * sizeof(float)); });
}

}  // namespace slotwise
