// A RowMemory is the memory of a shard's rows, on every backend.
//
// A row's record has its values and the optimizer's vectors, aligned so that a GPU reads both in as few
// pieces as it can (body/rows.h). The float that an optimizer keeps once a row lies in an array of its own:
// behind the values it would break the alignment of the next record.
//
// Included by row_store.inl.
#ifndef SLOTWISE_KERNELS_ROW_MEMORY_INL_
#define SLOTWISE_KERNELS_ROW_MEMORY_INL_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "kernels/backend/concept.h"
#include "kernels/body/rows.h"
#include "kernels/shard.h"
#include "slotwise/data_type.h"
#include "slotwise/sizing.h"

namespace slotwise {

// Grows `array` to n elements, and up to `most` if there is memory for them. REQUIRES: n <= most. Throws
// std::bad_alloc, and then the array is as it was.
template <class Growing>
void GrowAhead(Growing& array, std::uint64_t n, std::uint64_t most) {
  try {
    array.Grow(std::min<std::uint64_t>(most, array.Ahead(n)));
  } catch (const std::bad_alloc&) {
    array.Grow(n);
  }
}

// Memory for rows 0, 1, ..., which grows in place: rows move only when a table is altered.
// Thread-safety: one thread at a time.
template <Backend B>
class RowMemory {
 public:
  using Queue = typename B::Queue;

  // Reserves addresses for max_rows rows. REQUIRES: Validate(options) is OK. Throws std::bad_alloc.
  RowMemory(Queue& queue, const TableOptions& options, std::uint64_t max_rows)
      : max_rows_(max_rows),
        addresses_(max_rows),
        dim_(options.dim),
        type_(options.row_dtype),
        floats_(RecordFloats(options)),
        record_(sizing::RecordOf(options)),
        records_(queue, max_rows * record_.bytes) {
    if (KeepsOneFloatARow(options.optimizer.kind)) shared_.emplace(queue, max_rows);
    if (options.has_scores()) scored_ = std::make_unique<Scored>(queue, max_rows);
    if (sizing::KeepsKeys(options)) keys_ = std::make_unique<Keys>(queue, max_rows);
  }

  body::RowsRef Ref() const {
    return {records_.data(),
            type_,
            shared_ ? shared_->data() : nullptr,
            dim_,
            floats_,
            dim_ + record_.state_floats,
            record_.bytes,
            record_.state_at,
            scored_ ? scored_->data() : nullptr,
            keys_ ? keys_->data() : nullptr};
  }
  // Returns for how many rows there is memory. Memory comes in pieces, so that may be more than max_rows.
  std::uint64_t rows() const {
    std::uint64_t rows = records_.size() / record_.bytes;
    if (shared_) rows = std::min<std::uint64_t>(rows, shared_->size());
    if (scored_) rows = std::min<std::uint64_t>(rows, scored_->size());
    if (keys_) rows = std::min<std::uint64_t>(rows, keys_->size());
    return rows;
  }
  std::uint64_t bytes() const {
    return records_.size() + (shared_ ? shared_->size() * sizeof(float) : 0) +
           (scored_ ? scored_->size() * sizeof(body::ScoredKey) : 0) +
           (keys_ ? keys_->size() * sizeof(Key) : 0);
  }
  std::uint64_t BytesOf(std::uint64_t rows) const {
    const std::uint64_t beside = (scored_ ? sizeof(body::ScoredKey) : 0) + (keys_ ? sizeof(Key) : 0);
    return rows * (record_.bytes + (shared_ ? sizeof(float) : 0) + beside);
  }

  // Makes room for `rows` rows. Throws std::bad_alloc; rows() is as it was then.
  void Grow(std::uint64_t rows) {
    if (shared_) shared_->Grow(rows);
    if (scored_) scored_->Grow(rows);
    if (keys_) keys_->Grow(rows);
    records_.Grow(rows * record_.bytes);
  }

  // Makes room for `rows` rows, and for more ahead in half of the memory that is left, lists of rows
  // included. The other half is for other tables. While an ExactGrowth exists, nothing is taken ahead.
  // REQUIRES: this->rows() < rows <= max_rows. Throws std::bad_alloc; this->rows() is as it was then.
  void GrowAheadTo(Queue& queue, std::uint64_t rows) {
    const std::uint64_t beside = B::KeptBesideARow();
    const std::uint64_t more = BytesOf(rows) - std::min(BytesOf(rows), bytes());
    const std::uint64_t free = B::MemoryForTables(queue);
    if (more > free) throw std::bad_alloc();
    const std::uint64_t left = ExactGrowth::IsAsked() ? 0 : free - more;
    const std::uint64_t most = rows + std::min(left / 2 / (BytesOf(1) + beside), max_rows_ - rows);
    if (shared_) GrowAhead(*shared_, rows, most);
    if (scored_) GrowAhead(*scored_, rows, most);
    if (keys_) GrowAhead(*keys_, rows, most);
    GrowAhead(records_, rows * record_.bytes, most * record_.bytes);
  }

  // Makes the memory for rows of a table that is altered to `options` and may have `max_rows` rows here. The
  // memory of the rows may move; nothing else changes before EndAlter. Throws std::bad_alloc.
  void PrepareAlter(Queue& queue, const TableOptions& options, std::uint64_t max_rows) {
    const std::uint64_t addresses = std::max(addresses_, max_rows);
    records_.Extend(queue, addresses * record_.bytes);
    if (shared_) shared_->Extend(queue, addresses);
    if (scored_) scored_->Extend(queue, addresses);
    if (keys_) keys_->Extend(queue, addresses);
    addresses_ = addresses;
    const bool needs_scores = options.has_scores() && !scored_;
    const bool needs_keys = sizing::KeepsKeys(options) && !keys_;
    const std::uint64_t beside =
        (needs_scores ? sizeof(body::ScoredKey) : 0) + (needs_keys ? sizeof(Key) : 0);
    if (RowsToHold() * beside > B::MemoryForTables(queue)) throw std::bad_alloc();
    if (needs_scores) Make(queue, next_scored_);
    if (needs_keys) Make(queue, next_keys_);
  }
  // Ends PrepareAlter. If it is `kept`, rows are those of the altered table: arrays that it did not have have
  // any contents, and arrays that it does not need are freed.
  void EndAlter(bool kept, const TableOptions& options, std::uint64_t max_rows) {
    if (kept) {
      max_rows_ = max_rows;
      floats_ = RecordFloats(options);
      if (next_scored_) scored_ = std::move(next_scored_);
      if (next_keys_) keys_ = std::move(next_keys_);
      if (!options.has_scores()) scored_ = nullptr;
      if (!sizing::KeepsKeys(options)) keys_ = nullptr;
    }
    next_scored_ = nullptr;
    next_keys_ = nullptr;
  }

 private:
  using Scored = typename B::template Growing<body::ScoredKey>;
  using Keys = typename B::template Growing<Key>;

  // Returns for how many rows a new array has to have memory.
  std::uint64_t RowsToHold() const { return std::min(rows(), addresses_); }
  template <class Array>
  void Make(Queue& queue, std::unique_ptr<Array>& array) {
    array = std::make_unique<Array>(queue, addresses_);
    array->Grow(RowsToHold());
  }

  std::uint64_t max_rows_;
  std::uint64_t addresses_;  // rows that there are addresses for: the largest max_rows so far
  std::uint32_t dim_;
  DataType type_;
  std::uint32_t floats_;
  sizing::RecordBytes record_;
  typename B::template Growing<std::byte> records_;
  std::optional<typename B::template Growing<float>> shared_;  // what an optimizer keeps once a row
  std::unique_ptr<Scored> scored_;
  std::unique_ptr<Keys> keys_;           // for rounding by chance
  std::unique_ptr<Scored> next_scored_;  // of an alteration that is prepared
  std::unique_ptr<Keys> next_keys_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ROW_MEMORY_INL_
