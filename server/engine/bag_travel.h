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
// Calls take their places in the order of the device's work and of the exchange's lane, and need not wait for either.
#ifndef SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_
#define SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/tables.h"

namespace slotwise {

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

// Whether owned bags can travel alone: limits of Shard::PlanTraffic.
bool CanTravelAlone(const TravellingBags& bags);

// The way that costs less, there as `partials` and back as float32; all bags if others cannot travel alone, or nothing is
// known of costs.
Way FasterWay(const TravellingBags& bags, const TravelCosts& costs, DataType partials = DataType::kFloat32);

// Where bags lie before and after they travel. What a call of BagTravel left there must be done before the next use.
struct TravelArrays {
  explicit TravelArrays(Device& device) : sent(device), received(device) {}
  DeviceArray<float> sent, received;
};

class BagTravel {
 public:
  // `partials`: what partial sums travel as, equal on every rank. With one rank they do not, and are not rounded. With
  // `way` bags travel so, if they can; else by what is measured.
  BagTravel(Device& device, Collective& collective, Exchange& exchange,
            DataType partials = DataType::kFloat32, std::optional<Way> way = {});

  // Measures both ways, if there are several ranks. Before that, and with one rank, all bags travel.
  void Measure();
  const TravelCosts& costs() const { return costs_; }
  // What partial sums travel as.
  DataType partials() const { return partials_; }

  // The exchange's, by which pooled bags come.
  Lane& lane() const { return exchange_.lane(); }

  // The faster way, by what was measured, unless one was given. Does not communicate.
  Way Choose(const TravellingBags& bags) const;

  // REQUIRES: `shard` has prepared the batch. `pooled` becomes this rank's bags' sums over all ranks, before the
  // combiner's division: float[bags_of[rank]][dim] in device memory, in the order of the exchange's lane.
  void Pool(Shard& shard, const TravellingBags& bags, Way way, TravelArrays& arrays, float* pooled);

  // REQUIRES: `shard` has prepared the batch and inserted. Updates every rank's rows by the gradients of all bags, of
  // which `mine` is this rank's: float[bags_of[rank]][dim] in device memory, in the order of the device's
  // work, as the update is. They travel as kOwnedBags.
  void Update(Shard& shard, const TravellingBags& bags, const float* mine, const StepScalars& scalars,
              TravelArrays& arrays);

 private:
  // Room for `count` partial sums in `array`.
  Numbers Reserve(DeviceArray<float>& array, std::size_t count) const;

  Device& device_;
  Collective& collective_;
  Exchange& exchange_;
  const DataType partials_;
  const std::optional<Way> given_way_;
  TravelCosts costs_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_
