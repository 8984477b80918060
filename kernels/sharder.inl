// Sharder: of a batch that every rank sees, the keys of this rank, with their weights and their bags'
// offsets.
//
// The sharder owns the arrays of kept keys, offsets and weights; they last until the next SelectLocal. A
// sharder of one rank keeps nothing: the batch's own arrays are this rank's. Thread-safety: the queue's. All
// arrays are in device memory.
#ifndef SLOTWISE_KERNELS_SHARDER_INL_
#define SLOTWISE_KERNELS_SHARDER_INL_

#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/keep_mine.h"
#include "kernels/body/owner.h"
#include "kernels/shard.h"

namespace slotwise {

// The keys of a batch that this rank owns.
struct KeptKeys {
  BatchView batch;                                // of all ranks
  const std::uint32_t* offsets = nullptr;         // [bags + 1] into `keys`
  const Key* keys = nullptr;                      // [size]
  const float* weights = nullptr;                 // [size], or null: all 1
  std::uint32_t bags = 0;                         // of all ranks: a bag without a key here is empty
  std::uint32_t most = 0;                         // the keys are no more than this
  std::uint32_t size = 0;                         // their number, if size_on_device is null
  const std::uint32_t* size_on_device = nullptr;  // their number, until the host has asked for it
};

template <Backend B>
class Sharder {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  // Throws std::bad_alloc.
  Sharder(Queue& queue, const ShardPlace& place)
      : ranks_(static_cast<std::uint32_t>(place.ranks)),
        rank_(static_cast<std::uint16_t>(Value(place.rank))) {
    B::CopyIn(queue, bucket_map_.Reserve(queue, kBuckets), place.bucket_map.data(), kBuckets);
    size_.Reserve(queue, 1);
    weights_size_.Reserve(queue, 1);
  }

  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t rank() const { return rank_; }
  body::Owner owner() { return body::Owner{bucket_map_.data()}; }

  // This rank's keys of `batch`. Overwrites `spare`, and has done with it when the queue has done the work.
  // Does not wait. Throws std::bad_alloc.
  KeptKeys SelectLocal(Queue& queue, const BatchView& batch, Words& spare) {
    KeptKeys kept{.batch = batch, .bags = batch.bags()};
    kept.most = static_cast<std::uint32_t>(batch.keys.size());
    if (ranks_ == 1) {
      kept.keys = batch.keys.data();
      kept.weights = batch.weights.empty() ? nullptr : batch.weights.data();
      kept.offsets = batch.offsets.data();
      kept.size = kept.most;
      return kept;
    }
    const body::IsMine<body::Owner> is_mine{owner(), rank_};
    Key* const keys = keys_.Reserve(queue, kept.most);
    std::uint32_t* const offsets = offsets_.Reserve(queue, kept.bags + std::size_t{1});
    B::SelectKeys(queue, batch.keys.data(), kept.most, keys, size_.data(), is_mine);
    B::ForEach(queue, kept.bags,
               body::CountMine<body::Owner>{is_mine, batch.keys.data(), batch.offsets.data(), offsets});
    B::ExclusiveScan(queue, offsets, kept.bags, offsets);
    kept.keys = keys;
    kept.offsets = offsets;
    kept.size_on_device = size_.data();
    if (!batch.weights.empty()) kept.weights = KeepWeights(queue, batch, is_mine, spare);
    return kept;
  }

  // Gives back what a batch's arrays take. REQUIRES: no batch needs them any more.
  void FreeScratch() {
    keys_ = {};
    offsets_ = {};
    weights_ = {};
  }

 private:
  const float* KeepWeights(Queue& queue, const BatchView& batch, const body::IsMine<body::Owner>& is_mine,
                           Words& spare) {
    const auto most = static_cast<std::uint32_t>(batch.keys.size());
    std::uint32_t* const places = spare.Reserve(queue, most);
    float* const weights = weights_.Reserve(queue, most);
    B::SelectIndices(queue, most, places, weights_size_.data(),
                     body::KeyIsMine<body::Owner>{is_mine, batch.keys.data()});
    B::ForEachUpTo(queue, most, weights_size_.data(),
                   body::CopyWeights{batch.weights.data(), places, weights});
    return weights;
  }

  const std::uint32_t ranks_;
  const std::uint16_t rank_;
  typename B::template Scratch<std::uint16_t> bucket_map_;  // [kBuckets]
  typename B::template Scratch<Key> keys_;
  Words offsets_;
  typename B::template Scratch<float> weights_;
  Words size_;          // one: how many keys were kept
  Words weights_size_;  // one: how many weights were kept
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SHARDER_INL_
