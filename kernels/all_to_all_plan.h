// An AllToAllPlan says which bags of one batch travel between the ranks, and where each lies on its way.
//
// The device makes a plan once, and FoundBatch::PlanAllToAll fills it for batch after batch. A plan owns all
// memory that its batch's traffic needs, so plans of several batches may be in use at once.
// Thread-safety: same as the device. The device outlives its plans. A plan's destructor does not wait: the
// work that reads the plan has to be done.
#ifndef SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_H_
#define SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_H_

#include <cstddef>
#include <vector>

#include "kernels/stream.h"

namespace slotwise {

// Counts the bags that travel between this rank and each rank, itself included.
struct BagTraffic {
  // [ranks] Counts that rank's bags with keys on this rank, which sends partial sums and receives gradients.
  std::vector<std::size_t> with_keys_here;
  // [ranks] Counts this rank's bags with keys on that rank, which sends partial sums and receives gradients.
  std::vector<std::size_t> with_keys_there;
};

class AllToAllPlan {
 public:
  // The most ranks that a plan can serve.
  static constexpr int kMostRanks = 64;

  virtual ~AllToAllPlan() = default;
  AllToAllPlan(const AllToAllPlan&) = delete;
  AllToAllPlan& operator=(const AllToAllPlan&) = delete;

  // REQUIRES: the plan was filled. Returns how many bags travel. Waits until the device has counted them, but
  // for no work that was asked of the device after that.
  virtual const BagTraffic& Traffic() = 0;

  // REQUIRES: the plan was filled. `received` has the sums that all ranks' PoolToSend wrote for this rank, in
  // rank order, [Σ with_keys_there][dim]. Writes the sums of this rank's bags, float[bags_of[rank]][dim],
  // added in float32 from +0. Enqueues the work on `stream`; the plan must not be filled again before the
  // stream has done it.
  virtual void AddReceived(Stream& stream, ConstNumbers received, float* sums) const = 0;

 protected:
  AllToAllPlan() = default;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_H_
