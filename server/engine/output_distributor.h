// OutputDistributor: carries the pooled bags of a batch between ranks, and their gradients back: all bags, or
// only owned ones.
//
// All bags: every rank pools every bag, with zeros where the rank owns no key of the bag, and a
// reduce-scatter adds the ranks' sums; gradients are all-gathered. Owned bags: a rank pools and sends only
// the bags of which it owns keys, and gets only their gradients, by an all-to-all; the receiver adds the sums
// in rank order. The second way moves fewer bytes when bags have few keys for the number of ranks, and passes
// once more over memory. output_distribution.h says which way is faster. Both ways give the same numbers;
// where the exchange is deterministic, they give the same bytes. Partial sums may travel as 16-bit numbers:
// each rank rounds its sum once as it pools, and sums are added in float32 in rank order, so both ways give
// the same bytes then. Gradients travel as float32.
// Thread-safety: one thread at a time. Pool, Update and MeasureDistribution are collective.
// Throws std::bad_alloc, std::runtime_error. A call's work joins the order of the device's work and of the
// exchange's stream; the call need not wait for either.
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

// Measures the costs of both ways, with partial sums of type `partials`. With one rank all costs are 0,
// because nothing travels. The device is idle when the call returns.
DistributionCosts MeasureDistribution(Device& device, Collective& collective, Exchange& exchange,
                                      DataType partials = DataType::kFloat32);

// The memory for a batch's bags as they travel: the plan says which bags travel, the arrays hold the bags
// sent and received. The next batch may use the memory once the device is done with the batch before; batches
// that overlap have arrays of their own.
struct DistributionArrays {
  explicit DistributionArrays(Device& device)
      : plan(device.MakeAllToAllPlan()), sent(device), received(device) {}
  std::unique_ptr<AllToAllPlan> plan;  // destroyed last: the arrays wait for the device first
  DeviceArray<float> sent, received;

  std::size_t bytes() const { return sent.bytes() + received.bytes(); }
};

class OutputDistributor {
 public:
  OutputDistributor(Device& device, const Collective& collective, Exchange& exchange,
                    const DistributionOptions& options = {});

  // Returns the type in which partial sums travel; float32 with one rank, whose sums do not travel.
  DataType partials() const { return options_.partials; }
  const DistributionCosts& costs() const { return options_.costs; }

  // Returns the exchange's stream, which orders the writes of pooled bags.
  Stream& stream() const { return exchange_.stream(); }

  // Returns the faster way, or the one that the options name. Does not communicate.
  OutputDistribution Choose(const DistributedBags& bags) const;

  // Writes the sums of this rank's bags over all ranks to `pooled`: float[bags_of[rank]][dim] in device
  // memory, before the combiner's division, in the order of the exchange's stream. `bags` are those of
  // `batch`.
  void Pool(FoundBatch& batch, const DistributedBags& bags, OutputDistribution way,
            DistributionArrays& arrays, float* pooled);

  // Updates every rank's rows by the gradients of all bags. `mine` has the gradients of this rank's bags:
  // float[bags_of[rank]][dim] in device memory. Reads and updates follow the order of the device's work. The
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
