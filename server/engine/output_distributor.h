// OutputDistributor: carries the pooled bags of a batch between ranks, and their gradients back: all bags, or
// only owned ones.
//
// All bags: every rank pools every bag, with zeros where it owns no key of the bag, and a reduce-scatter adds
// the ranks' sums up; gradients are all-gathered. Owned bags: a rank pools and sends only the bags of which
// it owns keys, and gets only their gradients, by an all-to-all; the receiver adds the sums in rank order.
// The second way moves fewer bytes when bags have few keys for the number of ranks, and passes once more over
// memory. output_distribution.h reckons which way is faster. Both ways give the same numbers; where the
// exchange is deterministic, they give the same bytes. Partial sums may travel as 16-bit numbers: each rank's
// sum is rounded once, as it is pooled, and sums are added in float32 in rank order, so both ways give the
// same bytes then. Gradients travel as float32. Thread-safety: one thread at a time. Pool, Update and
// MeasureDistribution are collective. Throws std::bad_alloc, std::runtime_error. A call takes its place in
// the order of the device's work and of the exchange's stream, and need not wait for either.
#ifndef SLOTWISE_SERVER_ENGINE_OUTPUT_DISTRIBUTOR_H_
#define SLOTWISE_SERVER_ENGINE_OUTPUT_DISTRIBUTOR_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/output_distribution.h"

namespace slotwise {

// Measures what both ways cost, with partial sums of type `partials`. One rank's costs are zeros: nothing
// travels. The device has nothing left to do when the call returns.
DistributionCosts MeasureDistribution(Device& device, Collective& collective, Exchange& exchange,
                                      DataType partials = DataType::kFloat32);

// The memory that a batch's bags need as they travel: the plan says which of them travel, the arrays hold
// them before and after. The device has to be done with one batch's use before the next one's; batches that
// overlap have arrays of their own.
struct DistributionArrays {
  explicit DistributionArrays(Device& device)
      : plan(device.MakeAllToAllPlan()), sent(device), received(device) {}
  std::unique_ptr<AllToAllPlan> plan;  // ends last: the arrays wait for the device when they end
  DeviceArray<float> sent, received;

  std::size_t bytes() const { return sent.bytes() + received.bytes(); }
};

class OutputDistributor {
 public:
  OutputDistributor(Device& device, const Collective& collective, Exchange& exchange,
                    const DistributionOptions& options = {});

  // The type in which partial sums travel; float32 with one rank, whose sums do not travel.
  DataType partials() const { return options_.partials; }
  const DistributionCosts& costs() const { return options_.costs; }

  // The exchange's stream, in whose order pooled bags come.
  Stream& stream() const { return exchange_.stream(); }

  // Returns the faster way, or the one that the options name. Does not communicate.
  OutputDistribution Choose(const DistributedBags& bags) const;

  // `pooled` becomes this rank's bags' sums over all ranks, before the combiner's division:
  // float[bags_of[rank]][dim] in device memory, in the order of the exchange's stream. `bags` are those of
  // `batch`.
  void Pool(FoundBatch& batch, const DistributedBags& bags, OutputDistribution way,
            DistributionArrays& arrays, float* pooled);

  // Updates every rank's rows by the gradients of all bags, of which `mine` is this rank's:
  // float[bags_of[rank]][dim] in device memory, in the order of the device's work, as the update is. The
  // gradients travel as kOwnedBags. `bags` are those of `batch`.
  void Update(InsertedBatch batch, const DistributedBags& bags, const float* mine, const StepScalars& scalars,
              DistributionArrays& arrays);

 private:
  // Makes room for `count` partial sums in `array`.
  Numbers Reserve(DeviceArray<float>& array, std::size_t count) const;

  Device& device_;
  Exchange& exchange_;
  DistributionOptions options_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OUTPUT_DISTRIBUTOR_H_
