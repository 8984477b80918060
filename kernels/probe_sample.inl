// A ProbeSample measures how far the searches of some batches go, beside the searches themselves.
//
// The launches that find and add keys work at the memory's limit, and count nothing. Instead one small launch
// now and then searches for a few keys of a batch once more, before the batch changes the table, and writes
// how far each search went. The lengths come to the host behind that launch, without a wait: Read returns
// those that have come.
// Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_PROBE_SAMPLE_INL_
#define SLOTWISE_KERNELS_PROBE_SAMPLE_INL_

#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/portable.h"
#include "kernels/prepared_batch.inl"
#include "slotwise/probe_lengths.h"

namespace slotwise {

namespace body {

// Writes how many pairs of cells the searches for at most `most` of the keys look at, and 0 where there are
// fewer keys. The keys of a larger batch are chosen at even distances.
struct MeasureSearches {
  HashTableRef table;
  const Key* keys;
  std::uint32_t size;                   // the number of keys, if size_on_device is null
  const std::uint32_t* size_on_device;  // the same in device memory
  std::uint32_t most;
  std::uint32_t* lengths;  // [most]
  SLOTWISE_HD void operator()(std::uint64_t i) const {
    const std::uint64_t n = size_on_device == nullptr ? size : *size_on_device;
    const std::uint64_t key = n <= most ? i : i * n / most;
    lengths[i] = key < n ? table.PairsSearchedFor(keys[key]) : 0;
  }
};

// Writes that there were no keys.
struct NoLengths {
  std::uint32_t* lengths;
  SLOTWISE_HD void operator()(std::uint64_t i) const { lengths[i] = 0; }
};

}  // namespace body

template <Backend B>
class ProbeSample {
 public:
  using Queue = typename B::Queue;

  // At most kKeys keys of a batch are sampled, and one of kDistance batches is.
  static constexpr std::uint32_t kKeys = 256;
  static constexpr std::uint64_t kDistance = 1024;

  // Takes all the memory that the sample needs. Throws std::bad_alloc.
  explicit ProbeSample(Queue& queue) {
    lengths_.Reserve(queue, kKeys);
    B::ForEach(queue, kKeys, body::NoLengths{lengths_.data()});
    on_host_.Start(queue, lengths_.data(), kKeys);
    under_way_ = true;
  }

  // REQUIRES: the keys of `kept` are about to be searched for in `table`, the `rehashes`-th table of its
  // shard. Samples the batch if it is its turn: the first batch, the first of each later table, and every
  // kDistance-th. A batch without keys has no turn, nor has any while the last sample's lengths have not
  // come. Does not wait.
  void OnBatch(Queue& queue, const body::HashTableRef& table, std::uint64_t rehashes, const KeptKeys& kept) {
    if (kept.most == 0) return;
    if (batches_left_ > 0) --batches_left_;
    if (batches_left_ > 0 && rehashes == rehashes_) return;
    Take();
    if (under_way_) return;
    B::ForEach(
        queue, kKeys,
        body::MeasureSearches{table, kept.keys, kept.size, kept.size_on_device, kKeys, lengths_.data()});
    on_host_.Start(queue, lengths_.data(), kKeys);
    under_way_ = true;
    rehashes_ = rehashes;
    batches_left_ = kDistance;
  }

  // Returns the lengths that have come to the host. Does not wait.
  const ProbeLengths& Read() {
    Take();
    return lengths_so_far_;
  }

 private:
  void Take() {
    if (!under_way_ || !on_host_.IsDone()) return;
    under_way_ = false;
    for (const std::uint32_t length : on_host_.Wait()) {
      if (length > 0) lengths_so_far_.Count(length);
    }
  }

  typename B::template Scratch<std::uint32_t> lengths_;  // [kKeys], in device memory; 0: there was no key
  typename B::HostCopy on_host_;                         // of lengths_
  bool under_way_ = false;                               // whether there are lengths that are not counted yet
  std::uint64_t batches_left_ = 0;                       // until the next turn
  std::uint64_t rehashes_ = 0;                           // of the table that was sampled last
  ProbeLengths lengths_so_far_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_PROBE_SAMPLE_INL_
