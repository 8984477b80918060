// Which bags of a batch travel between ranks: all of them, or only those that are owned (bag_travel.h). What is faster is
// reckoned from what the ranks measured as they started.
//
// Thread-safety: plain values and pure functions.
#ifndef SLOTWISE_SERVER_ENGINE_TRAVEL_WAY_H_
#define SLOTWISE_SERVER_ENGINE_TRAVEL_WAY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "slotwise/data_type.h"

namespace slotwise {

enum class Way : std::uint8_t { kAllBags, kOwnedBags };

// A batch, as far as it decides about the way. Equal on every rank.
struct TravellingBags {
  std::vector<std::size_t> bags_of;  // [ranks]
  std::size_t keys = 0;
  std::uint32_t dim = 0;

  std::size_t bags() const;
};

// Seconds a byte of an array that holds every bag, on average over the ranks.
struct TravelCosts {
  double reduce_scatter = 0;  // of partial sums, in the type that they travel in
  double all_gather = 0;
  double all_to_all = 0;
  double copy = 0;  // read and written on the device
};

// How bags travel. Equal on every rank.
struct TravelOptions {
  // What ranks' partial sums of bags are rounded to on their way to each other. One rank's do not travel.
  DataType partials = DataType::kFloat32;
  // What MeasureTravel said of `partials`. Nothing known: all bags travel.
  TravelCosts costs = {};
  // The way, where bags can travel so; by default the faster one, by costs.
  std::optional<Way> way = {};
};

// Of `bags` bags with `keys` keys, the share that one of `ranks` ranks owns a key of, if owners are drawn at random.
double ShareOwned(std::size_t bags, std::size_t keys, std::size_t ranks);

// Whether owned bags can travel alone: limits of Shard::PlanTraffic.
bool CanTravelAlone(const TravellingBags& bags);

// The way that costs less, there as `partials` and back as float32; all bags if others cannot travel alone, or nothing is
// known of costs.
Way FasterWay(const TravellingBags& bags, const TravelCosts& costs, DataType partials = DataType::kFloat32);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TRAVEL_WAY_H_
