// AllToAllPlanOn implements the plan of all_to_all_plan.h on every backend: it computes which bags of one
// batch travel between ranks and where each lies on its way, and does the work at both ends.
//
// A plan owns all its arrays, so plans of several batches may be in use at once. Thread-safety: same as the
// device.
#ifndef SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_INL_
#define SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_INL_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/all_to_all.h"
#include "kernels/body/owner.h"
#include "kernels/body/sum_in_rank_order.h"
#include "kernels/dispatch.h"
#include "kernels/prepared_batch.inl"
#include "kernels/shard.h"

namespace slotwise {

template <Backend B>
class AllToAllPlanOn final : public AllToAllPlan {
 public:
  using Queue = typename B::Queue;

  // Plans the traffic of batch number `batch`. Does not wait. Throws std::bad_alloc.
  void Plan(Queue& queue, std::uint64_t batch, const KeptKeys& kept, Sharder<B>& sharder,
            std::span<const std::size_t> bags_of, std::uint32_t dim) {
    const std::uint32_t ranks = sharder.ranks();
    const auto bags = static_cast<std::uint32_t>(bags_of[sharder.rank()]);
    const auto first = std::reduce(bags_of.begin(), bags_of.begin() + sharder.rank(), std::size_t{0});
    const std::uint32_t copies = ranks * bags;
    batch_ = 0;
    std::uint32_t* const sent = sent_places_.Reserve(queue, kept.bags + std::size_t{1});
    std::uint32_t* const received = received_places_.Reserve(queue, copies + std::size_t{1});
    std::uint32_t* const counts = counts_.Reserve(queue, 2 * (ranks + std::size_t{1}));
    B::ForEach(queue, kept.bags, body::CountBagsToSend{kept.offsets, sent});
    B::ExclusiveScan(queue, sent, kept.bags, sent);
    B::ForEach(queue, bags,
               body::CountBagsToReceive<body::Owner>{
                   sharder.owner(), kept.batch.keys.data(), kept.batch.offsets.data() + first,
                   static_cast<std::uint32_t>(first), bags, ranks, received});
    B::ExclusiveScan(queue, received, copies, received);
    body::ReadBorders read_sent{sent, counts, {}};
    body::ReadBorders read_received{received, counts + ranks + 1, {}};
    for (std::uint32_t r = 0; r < ranks; ++r) {
      read_sent.borders[r + 1] = read_sent.borders[r] + static_cast<std::uint32_t>(bags_of[r]);
      read_received.borders[r + 1] = read_received.borders[r] + bags;
    }
    B::ForEach(queue, ranks + 1, read_sent);
    B::ForEach(queue, ranks + 1, read_received);
    counts_on_host_.Start(queue, counts, 2 * (ranks + std::size_t{1}));
    copies_ = {received, bags, ranks, dim};
    batch_ = batch;
  }

  // Returns whether this is the plan of batch number `batch`.
  bool IsOf(std::uint64_t batch) const { return batch_ == batch; }

  // REQUIRES: Plan.
  const BagTraffic& Traffic() override {
    const std::span<const std::uint32_t> sums = counts_on_host_.Wait();
    const auto ranks = static_cast<std::size_t>(copies_.ranks);
    const auto differences = [ranks](std::span<const std::uint32_t> borders) {
      std::vector<std::size_t> counts(ranks);
      for (std::size_t r = 0; r < ranks; ++r) counts[r] = borders[r + 1] - borders[r];
      return counts;
    };
    traffic_ = {differences(sums.first(ranks + 1)), differences(sums.last(ranks + 1))};
    return traffic_;
  }

  // REQUIRES: Plan. Returns where each bag lies among those that this rank sends, [bags + 1]; a bag that does
  // not travel lies where the next one does.
  const std::uint32_t* sent_places() { return sent_places_.data(); }

  void AddReceived(Stream& stream, ConstNumbers received, float* sums) const override {
    Queue& queue = static_cast<typename B::Stream&>(stream).queue();
    WithElements(received, [&]<class T>(const T* elements) {
      using Addends = body::ReceivedPartialSums<T>;
      B::ForEachTile(queue, copies_.bags, copies_.dim,
                     body::SumInRankOrder<Addends>{{copies_, elements}, sums});
    });
  }

  // REQUIRES: Plan. See InsertedBatch::GradientsToSend.
  void CopyGradients(Queue& queue, const float* gradients, float* sent) const {
    B::ForEachTile(queue, copies_.bags, copies_.dim, body::CopyGradients{copies_, gradients, sent});
  }

 private:
  typename B::template Scratch<std::uint32_t> sent_places_;      // [bags + 1]
  typename B::template Scratch<std::uint32_t> received_places_;  // [ranks · this rank's bags + 1]
  typename B::template Scratch<std::uint32_t> counts_;           // [2][ranks + 1]
  typename B::HostCopy counts_on_host_;
  body::BagCopies copies_{};
  BagTraffic traffic_;
  std::uint64_t batch_ = 0;  // the batch whose plan this is; 0 if there is none
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ALL_TO_ALL_PLAN_INL_
