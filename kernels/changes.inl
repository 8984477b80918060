// Changes remembers which rows of a shard changed, and which keys were erased, since the last kept snapshot.
//
// Included by row_store.inl. Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_CHANGES_INL_
#define SLOTWISE_KERNELS_CHANGES_INL_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/snapshot.h"
#include "kernels/shard.h"

namespace slotwise {

// Has marks in device memory, a byte a row, and erased keys in host memory, up to a bound. Past the bound no
// erased keys are remembered, and a snapshot of changes alone is not possible.
template <Backend B>
class Changes {
 public:
  using Queue = typename B::Queue;

  // Begins without changes. REQUIRES: max_rows are the most rows there will ever be. Throws std::bad_alloc.
  Changes(Queue& queue, std::uint64_t max_rows, std::uint64_t max_erased)
      : max_rows_(max_rows), max_erased_(max_erased), marks_(queue, max_rows) {}

  // Returns for how many rows there are marks.
  std::uint64_t rows() const { return rows_; }
  // Makes marks for `rows` rows. Throws std::bad_alloc; rows() is as it was then.
  void Grow(Queue& queue, std::uint64_t rows) {
    const std::uint64_t wanted = std::min(rows, max_rows_);
    if (wanted <= rows_) return;
    marks_.Grow(wanted);
    B::ForEach(queue, wanted - rows_, body::Fill<std::uint8_t>{marks_.data() + rows_, 0});
    rows_ = wanted;
  }

  // From now on there may be `max_rows` rows. Throws std::bad_alloc, and then nothing has changed.
  void Extend(Queue& queue, std::uint64_t max_rows) {
    marks_.Extend(queue, max_rows);
    max_rows_ = std::max(max_rows_, max_rows);
  }

  // Marks distinct rows.
  void Mark(Queue& queue, const RowIndex* rows, std::uint32_t n) {
    B::ForEach(queue, n, body::MarkRows{rows, marks_.data()});
  }
  // Marks the rows of segments.
  void Mark(Queue& queue, const body::Segments& segments) {
    B::ForEach(queue, segments.segments, body::MarkSegments{segments, marks_.data()});
  }

  // Makes room to remember n erased keys. Throws std::bad_alloc.
  void ReserveErase(std::uint32_t n) {
    const std::size_t wanted = std::min<std::size_t>(erased_.size() + n, max_erased_);
    if (!too_many_erased_ && wanted > erased_.capacity()) {
      erased_.reserve(std::max(wanted, std::min<std::size_t>(2 * erased_.capacity(), max_erased_)));
    }
  }
  // Remembers that `keys`, in the queue's memory, were erased. REQUIRES: ReserveErase of at least `count`.
  void Erased(Queue& queue, const Key* keys, std::uint32_t count) {
    if (count > max_erased_ - erased_.size()) {
      erased_.clear();
      too_many_erased_ = true;
    }
    if (too_many_erased_) return;
    const std::size_t before = erased_.size();
    erased_.resize(before + count);
    B::CopyOut(queue, erased_.data() + before, keys, count);
  }

  // FAILED_PRECONDITION if more keys were erased than are remembered.
  Status AreKnown() const {
    if (!too_many_erased_) return {};
    return FailedPrecondition("more than " + std::to_string(max_erased_) +
                              " keys were erased since the last checkpoint: take a base");
  }
  // Returns the distinct keys that were erased. Throws std::bad_alloc.
  std::vector<Key> ErasedKeys() const {
    std::vector<Key> keys = erased_;
    std::ranges::sort(keys, {}, [](Key key) { return Value(key); });
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
  }

  // Returns one bit for each row in [0, used), in `words`. Throws std::bad_alloc.
  const std::uint32_t* Packed(Queue& queue, std::uint32_t used,
                              typename B::template Scratch<std::uint32_t>& words) {
    const std::uint32_t size = used / 32 + (used % 32 == 0 ? 0 : 1);
    std::uint32_t* const packed = words.Reserve(queue, size);
    B::ForEach(queue, size, body::PackMarks{marks_.data(), packed, used});
    return packed;
  }

  // Begins a snapshot with `remember`: changes count from now on. Cannot fail.
  void Take(Queue& queue) {
    B::ForEach(queue, rows_, body::TakeMarks{marks_.data()});
    taken_ = std::exchange(erased_, {});
    too_many_taken_ = std::exchange(too_many_erased_, false);
  }
  // Ends that snapshot. If it was not kept, the changes before it count again.
  void EndTake(Queue& queue, bool kept) {
    B::ForEach(queue, rows_, body::EndMarks{marks_.data(), kept});
    const std::vector<Key> taken = std::exchange(taken_, {});
    const bool too_many = std::exchange(too_many_taken_, false);
    if (kept) return;
    try {
      erased_.insert(erased_.end(), taken.begin(), taken.end());
      too_many_erased_ = too_many_erased_ || too_many || erased_.size() > max_erased_;
    } catch (const std::bad_alloc&) {
      too_many_erased_ = true;
    }
    if (too_many_erased_) erased_.clear();
  }

 private:
  std::uint64_t max_rows_;
  const std::uint64_t max_erased_;
  std::uint64_t rows_ = 0;
  typename B::template Growing<std::uint8_t> marks_;
  std::vector<Key> erased_;  // with repetitions; none if there were too many
  std::vector<Key> taken_;   // by the open snapshot
  bool too_many_erased_ = false;
  bool too_many_taken_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_CHANGES_INL_
