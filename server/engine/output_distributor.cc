#include "server/engine/output_distributor.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

namespace slotwise {
namespace {

std::vector<std::size_t> Times(std::span<const std::size_t> counts, std::size_t factor) {
  std::vector<std::size_t> products(counts.begin(), counts.end());
  for (std::size_t& product : products) product *= factor;
  return products;
}

}  // namespace

// Runs each operation once to connect the ranks, and then several times. The fastest run was disturbed least.
DistributionCosts MeasureDistribution(Device& device, Collective& collective, Exchange& exchange,
                                      DataType partials) {
  if (collective.size() == 1) return {};
  using Clock = std::chrono::steady_clock;
  constexpr int kRepeats = 5;
  const std::size_t bytes = device.SharesHostMemory() ? std::size_t{1} << 20 : std::size_t{32} << 20;
  const auto ranks = static_cast<std::size_t>(collective.size());
  const std::size_t block = bytes / sizeof(float) / ranks;
  const std::vector<std::size_t> sizes(ranks, block);
  DistributionArrays arrays(device);
  float* const from = arrays.sent.Reserve(block * ranks);
  float* const to = arrays.received.Reserve(block * ranks);
  // An uninitialised array may hold numbers with which processors are slow, so it is filled with zeros.
  const std::vector<float> zeros(block * ranks);
  device.Upload(from, zeros.data(), zeros.size() * sizeof(float));

  const auto cost = [&](auto operation) {
    std::uint64_t fastest = std::numeric_limits<std::uint64_t>::max();
    for (int i = 0; i <= kRepeats; ++i) {
      const Clock::time_point begin = Clock::now();
      operation();
      device.Wait();
      const std::chrono::nanoseconds time = Clock::now() - begin;
      if (i > 0) fastest = std::min(fastest, static_cast<std::uint64_t>(time.count()));
    }
    collective.AllReduceSum({&fastest, 1});
    return static_cast<double>(fastest) * 1e-9 / static_cast<double>(ranks * bytes);
  };
  const std::vector<std::size_t> partial_sizes(ranks, block * sizeof(float) / BytesOf(partials));
  DistributionCosts costs;
  costs.reduce_scatter = cost([&] { exchange.ReduceScatter(partial_sizes, {from, partials}, to); });
  costs.all_gather = cost([&] { exchange.AllGatherBlocks(Times(sizes, sizeof(float)), to); });
  costs.all_to_all = cost([&] { exchange.AllToAll(sizes, from, sizes, to); });
  costs.copy = cost([&] { device.WorkStream().Copy(to, from, block * ranks * sizeof(float)); });
  return costs;
}

OutputDistributor::OutputDistributor(Device& device, const Collective& collective, Exchange& exchange,
                                     const DistributionOptions& options)
    : device_(device), exchange_(exchange), options_(options) {
  if (collective.size() == 1) options_.partials = DataType::kFloat32;
}

OutputDistribution OutputDistributor::Choose(const DistributedBags& bags) const {
  if (options_.way && OwnedBagsCanTravel(bags)) return *options_.way;
  return FasterWay(bags, options_.costs, options_.partials);
}

Numbers OutputDistributor::Reserve(DeviceArray<float>& array, std::size_t count) const {
  return {array.Reserve((count * BytesOf(partials()) + sizeof(float) - 1) / sizeof(float)), partials()};
}

void OutputDistributor::Pool(FoundBatch& batch, const DistributedBags& bags, OutputDistribution way,
                             DistributionArrays& arrays, float* pooled) {
  Stream& stream = exchange_.stream();
  const Numbers sent = Reserve(arrays.sent, bags.bags() * bags.dim);
  if (way == OutputDistribution::kAllBags) {
    batch.Pool(sent);
    stream.OrderAfter(device_.WorkStream());
    return exchange_.ReduceScatter(Times(bags.bags_of, bags.dim), sent, pooled);
  }
  AllToAllPlan& plan = *arrays.plan;
  batch.PlanAllToAll(bags.bags_of, plan);
  batch.PoolToSend(plan, sent);
  const BagTraffic& traffic = plan.Traffic();  // counted while bags are pooled
  const Numbers received = Reserve(arrays.received, Sum(traffic.with_keys_there) * bags.dim);
  stream.OrderAfter(device_.WorkStream());
  exchange_.AllToAll(Times(traffic.with_keys_here, bags.dim), sent, Times(traffic.with_keys_there, bags.dim),
                     received);
  plan.AddReceived(stream, received, pooled);
}

void OutputDistributor::Update(InsertedBatch batch, const DistributedBags& bags, const float* mine,
                               const StepScalars& scalars, DistributionArrays& arrays) {
  Stream& stream = exchange_.stream();
  AllToAllPlan& plan = *arrays.plan;
  batch.PlanAllToAll(bags.bags_of, plan);
  const BagTraffic& traffic = plan.Traffic();
  float* const sent = arrays.sent.Reserve(Sum(traffic.with_keys_there) * bags.dim);
  float* const received = arrays.received.Reserve(Sum(traffic.with_keys_here) * bags.dim);
  batch.GradientsToSend(plan, mine, sent);
  stream.OrderAfter(device_.WorkStream());
  exchange_.AllToAll(Times(traffic.with_keys_there, bags.dim), sent, Times(traffic.with_keys_here, bags.dim),
                     received);
  device_.WorkStream().OrderAfter(stream);
  std::move(batch).UpdateFromReceived(plan, received, scalars);
}

}  // namespace slotwise
