// AllToAllPlan: which bags of one batch travel between the ranks, and where each lies on its ways.
//
// A plan is made by the device once and filled for batch after batch (FoundBatch::PlanAllToAll); all that a
// batch's traffic needs in memory is the plan's own, so plans of several batches may be in use at once.
// Thread-safety: the device's. The device outlives its plans. A plan's end does not wait: the work that reads
// the plan has to be done.
#ifndef SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_H_
#define SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_H_

#include <cstddef>
#include <vector>

#include "kernels/stream.h"

namespace slotwise {

// How many bags travel between this rank and each rank, itself too.
struct BagTraffic {
  // [ranks] Of that rank's bags, those with keys on this rank: their partial sums leave, their gradients
  // come.
  std::vector<std::size_t> with_keys_here;
  // [ranks] Of this rank's bags, those with keys on that rank: their partial sums come, their gradients
  // leave.
  std::vector<std::size_t> with_keys_there;
};

class AllToAllPlan {
 public:
  // A plan is for at most so many ranks.
  static constexpr int kMostRanks = 64;

  virtual ~AllToAllPlan() = default;
  AllToAllPlan(const AllToAllPlan&) = delete;
  AllToAllPlan& operator=(const AllToAllPlan&) = delete;

  // REQUIRES: the plan was filled. Returns how many bags travel; waits until the device has counted them, and
  // for nothing that was asked of the device after that.
  virtual const BagTraffic& Traffic() = 0;

  // REQUIRES: the plan was filled. `received` is what all ranks' PoolToSend wrote for this rank, in rank
  // order, [Σ with_keys_there][dim]. Writes the sums of this rank's bags, float[bags_of[rank]][dim], added in
  // float32 from +0. Takes its place in the order of `stream`; the plan must not be filled again before the
  // stream has done this.
  virtual void AddReceived(Stream& stream, ConstNumbers received, float* sums) const = 0;

 protected:
  AllToAllPlan() = default;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_H_
