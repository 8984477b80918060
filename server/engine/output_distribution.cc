#include "server/engine/output_distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/shard.h"

namespace slotwise {

std::size_t DistributedBags::bags() const {
  return std::accumulate(bags_of.begin(), bags_of.end(), std::size_t{0});
}

double ShareOwned(std::size_t bags, std::size_t keys, std::size_t ranks) {
  if (bags == 0) return 0;
  return 1 - std::pow(1 - 1.0 / static_cast<double>(ranks),
                      static_cast<double>(keys) / static_cast<double>(bags));
}

bool OwnedBagsCanTravel(const DistributedBags& bags) {
  const std::size_t ranks = bags.bags_of.size();
  return ranks <= AllToAllPlan::kMostRanks &&
         ranks * std::ranges::max(bags.bags_of) < std::numeric_limits<std::uint32_t>::max();
}

OutputDistribution FasterWay(const DistributedBags& bags, const DistributionCosts& costs, DataType partials) {
  if (!OwnedBagsCanTravel(bags)) return OutputDistribution::kAllBags;
  // Partial sums take this share of the gradients' bytes.
  const double share = static_cast<double>(BytesOf(partials)) / sizeof(float);
  const double all = share * costs.reduce_scatter + costs.all_gather;
  const double owned =
      (share + 1) * (costs.all_to_all + costs.copy) * ShareOwned(bags.bags(), bags.keys, bags.bags_of.size());
  return owned < all ? OutputDistribution::kOwnedBags : OutputDistribution::kAllBags;
}

}  // namespace slotwise
