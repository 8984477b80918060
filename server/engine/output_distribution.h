// OutputDistribution: which bags of a batch travel between ranks, all of them or only the owned ones
// (output_distributor.h). The ranks' measurements at their start decide which way is faster.
//
// Thread-safety: plain values and pure functions.
#ifndef SLOTWISE_SERVER_ENGINE_OUTPUT_DISTRIBUTION_H_
#define SLOTWISE_SERVER_ENGINE_OUTPUT_DISTRIBUTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "slotwise/data_type.h"

namespace slotwise {

enum class OutputDistribution : std::uint8_t { kAllBags, kOwnedBags };

// The sizes of a batch that decide how its bags travel. Equal on every rank.
struct DistributedBags {
  std::vector<std::size_t> bags_of;  // [ranks]
  std::size_t keys = 0;
  std::uint32_t dim = 0;

  std::size_t bags() const;
};

// Costs in seconds per byte of an array that holds every bag, averaged over the ranks.
struct DistributionCosts {
  double reduce_scatter = 0;  // of partial sums, in the type in which they travel
  double all_gather = 0;
  double all_to_all = 0;
  double copy = 0;  // a read and a write on the device
};

// The choice between the ways. Equal on every rank.
struct DistributionOptions {
  // The type to which ranks round their partial sums before they travel. With one rank nothing travels.
  DataType partials = DataType::kFloat32;
  // The result of MeasureDistribution with `partials`. If there is none, all bags travel.
  DistributionCosts costs = {};
  // The way to use wherever it is possible; by default the faster way, by the costs.
  std::optional<OutputDistribution> way = {};
};

// Returns the fraction of the bags of which a rank owns a key, for `bags` bags with `keys` keys in all and
// `ranks` ranks, if the keys' owners are random.
double ShareOwned(std::size_t bags, std::size_t keys, std::size_t ranks);

// Returns whether the batch is within the limits of FoundBatch::PlanAllToAll, so that owned bags can travel.
bool OwnedBagsCanTravel(const DistributedBags& bags);

// Returns the way that costs less, for sums of type `partials` and float32 gradients; kAllBags if owned bags
// cannot travel, or if costs are unknown.
OutputDistribution FasterWay(const DistributedBags& bags, const DistributionCosts& costs,
                             DataType partials = DataType::kFloat32);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OUTPUT_DISTRIBUTION_H_
