// How the pooled bags of a batch travel between ranks, and their gradients: all of them, or only those that are owned.
//
// All bags: every rank pools every bag, zeros where it owns no key of it, and a reduce-scatter adds them up; gradients are
// all-gathered. Owned bags: a rank pools and sends only the bags of which it owns keys, and gets only their gradients, by
// an all-to-all; what comes is added in rank order. That moves less when bags have few keys for the number of ranks, and
// passes once more over memory. travel_way.h knows which is faster.
// Both ways give the same numbers; where the exchange is deterministic, the same bytes.
// Partial sums may travel as 16-bit numbers: each rank's is rounded once, as it is pooled, and what comes is added in
// float32 in rank order, so both ways give the same bytes then. Gradients travel as they are.
// Thread-safety: one thread at a time. Pool, Update and MeasureTravel are collective. Throws std::bad_alloc,
// std::runtime_error.
// Calls take their places in the order of the device's work and of the exchange's stream, and need not wait for either.
#ifndef SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_
#define SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/travel_way.h"

namespace slotwise {

// What both ways cost, with `partials` as partial sums; zeros with one rank, where nothing travels. Leaves the device with
// nothing to do.
TravelCosts MeasureTravel(Device& device, Collective& collective, Exchange& exchange,
                          DataType partials = DataType::kFloat32);

// What a batch's bags need as they travel: where they lie before and after, and which of them travel. What a call of
// BagTravel left there must be done before the next batch's use; batches that overlap have arrays of their own.
struct TravelArrays {
  explicit TravelArrays(Device& device) : plan(device.MakeTrafficPlan()), sent(device), received(device) {}
  std::unique_ptr<TrafficPlan> plan;  // ends last: the arrays wait for the device when they end
  DeviceArray<float> sent, received;
};

class BagTravel {
 public:
  BagTravel(Device& device, const Collective& collective, Exchange& exchange,
            const TravelOptions& options = {});

  // What partial sums travel as: float32 with one rank, whose do not.
  DataType partials() const { return options_.partials; }
  const TravelCosts& costs() const { return options_.costs; }

  // The exchange's, by which pooled bags come.
  Stream& stream() const { return exchange_.stream(); }

  // The faster way, unless one was given. Does not communicate.
  Way Choose(const TravellingBags& bags) const;

  // REQUIRES: `shard` has prepared the batch. `pooled` becomes this rank's bags' sums over all ranks, before the
  // combiner's division: float[bags_of[rank]][dim] in device memory, in the order of the exchange's stream.
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
  Exchange& exchange_;
  TravelOptions options_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BAG_TRAVEL_H_
