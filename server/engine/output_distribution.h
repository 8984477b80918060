// OutputDistribution: which bags of a batch travel between ranks, all of them or only the owned ones
// (output_distributor.h). The faster way is reckoned from what the ranks measured as they started.
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

// The sizes of a batch that decide about its way. Equal on every rank.
struct DistributedBags {
  std::vector<std::size_t> bags_of;  // [ranks]
  std::size_t keys = 0;
  std::uint32_t dim = 0;

  std::size_t bags() const;
};

// Seconds a byte of an array that holds every bag, on average over the ranks.
struct DistributionCosts {
  double reduce_scatter = 0;  // of partial sums, in the type that they travel in
  double all_gather = 0;
  double all_to_all = 0;
  double copy = 0;  // read and written on the device
};

// The choice between the ways. Equal on every rank.
struct DistributionOptions {
  // The type to which ranks' partial sums of bags are rounded on their way to each other. One rank's sums do
  // not travel.
  DataType partials = DataType::kFloat32;
  // What MeasureDistribution measured with `partials`. If nothing is known, all bags travel.
  DistributionCosts costs = {};
  // The way to take wherever bags can travel so; by default the faster way, by the costs.
  std::optional<OutputDistribution> way = {};
};

// Returns the share of `bags` bags with `keys` keys of which one of `ranks` ranks owns a key, if owners are
// drawn at random.
double ShareOwned(std::size_t bags, std::size_t keys, std::size_t ranks);

// Returns whether owned bags can travel alone: FoundBatch::PlanAllToAll has limits.
bool OwnedBagsCanTravel(const DistributedBags& bags);

// Returns the way that costs less, for sums of type `partials` and float32 gradients; all bags if owned bags
// cannot travel alone, or if nothing is known of costs.
OutputDistribution FasterWay(const DistributedBags& bags, const DistributionCosts& costs,
                             DataType partials = DataType::kFloat32);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OUTPUT_DISTRIBUTION_H_
