// How the pooled bags of a batch travel between ranks, and their gradients: all of them, or only those that are owned.
//
// All bags: every rank pools every bag, zeros where it owns no key of it, and a reduce-scatter adds them up; gradients are
// all-gathered. Owned bags: a rank pools and sends only the bags of which it owns keys, and gets only their gradients, by
// an all-to-all; what comes is added in rank order. That moves less when bags have few keys for the number of ranks, and
// passes once more over memory. Which is faster is reckoned from what the ranks measured as they started, and agreed on.
// Both ways give the same numbers; where the exchange is deterministic, the same bytes.
// Partial sums may travel as 16-bit numbers: each rank's is rounded once, as it is pooled, and what comes is added in
// float32 in rank order, so both ways give the same bytes then. Gradients travel as they are.
// Thread-safety: one thread at a time. Calls are collective but for Choose. Throws std::bad_alloc, std::runtime_error.
#ifndef SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_
#define SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"

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

// Of `bags` bags with `keys` keys, the share that one of `ranks` ranks owns a key of, if owners are drawn at random.
double ShareOwned(std::size_t bags, std::size_t keys, std::size_t ranks);

// The way that costs less, there as `partials` and back as float32; all bags if the others cannot be planned
// (Shard::PlanTraffic), or nothing is known of costs.
Way FasterWay(const TravellingBags& bags, const TravelCosts& costs, DataType partials = DataType::kFloat32);

class BagTravel {
 public:
  // `partials`: what partial sums travel as, equal on every rank. With one rank they do not, and are not rounded.
  BagTravel(Device& device, Collective& collective, Exchange& exchange,
            DataType partials = DataType::kFloat32);

  // Measures both ways, if there are several ranks. Before that, and with one rank, all bags travel.
  void Measure();
  const TravelCosts& costs() const { return costs_; }
  // What partial sums travel as.
  DataType partials() const { return partials_; }

  // The faster way, by what was measured. Does not communicate.
  Way Choose(const TravellingBags& bags) const { return FasterWay(bags, costs_, partials_); }

  // REQUIRES: `shard` has prepared the batch. `pooled` becomes this rank's bags' sums over all ranks, before the
  // combiner's division: float[bags_of[rank]][dim] in device memory.
  void Pool(Shard& shard, const TravellingBags& bags, Way way, float* pooled);

  // REQUIRES: `shard` has prepared the batch and inserted. Updates every rank's rows by the gradients of all bags, of
  // which `mine` is this rank's: float[bags_of[rank]][dim] in device memory. They travel as kOwnedBags.
  void Update(Shard& shard, const TravellingBags& bags, const float* mine, const StepScalars& scalars);

 private:
  // Room for `count` partial sums in `array`.
  Numbers Reserve(DeviceArray<float>& array, std::size_t count);

  Device& device_;
  Collective& collective_;
  Exchange& exchange_;
  const DataType partials_;
  DeviceArray<float> sent_, received_;
  TravelCosts costs_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_
