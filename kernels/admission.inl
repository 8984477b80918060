// AdmissionOn decides which keys without a row a push gives one, on every backend.
//
// Included by prepared_batch.inl. Thread-safety: same as the queue. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_ADMISSION_INL_
#define SLOTWISE_KERNELS_ADMISSION_INL_

#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "kernels/backend/concept.h"
#include "kernels/body/admission.h"
#include "kernels/body/bloom_counter.h"
#include "kernels/body/hash.h"
#include "kernels/body/update.h"
#include "kernels/row_store.inl"
#include "kernels/shard_batch.h"
#include "slotwise/batch.h"
#include "slotwise/table_options.h"

namespace slotwise {

template <Backend B>
class AdmissionOn {
 public:
  using Queue = typename B::Queue;

  explicit AdmissionOn(const AdmissionOptions& options) : options_(options) {}

  // From now on admits keys by these options.
  void Alter(const AdmissionOptions& options) { options_ = options; }

  bool on() const { return options_.kind != AdmissionKind::kNone; }

  // Says which push comes next: the table's step, and the store of the candidates' table, or null.
  void BeginPush(std::uint64_t step, RowStore<B>* candidates) {
    if (options_.kind == AdmissionKind::kFrequency && candidates == nullptr)
      throw std::logic_error("a push is prepared without the table that counts its keys");
    step_ = step;
    candidates_ = candidates;
    absent_ = admitted_ = 0;
  }

  // Lists the places in `keys` of those of the absent keys that are admitted, in no order. The list lasts
  // until the next call. Waits. Throws std::bad_alloc. REQUIRES: BeginPush.
  std::span<std::uint32_t> Admit(Queue& queue, RowStore<B>& store, const Key* keys,
                                 std::span<const std::uint32_t> absent) {
    absent_ = static_cast<std::uint32_t>(absent.size());
    admitted_ = 0;
    if (candidates_ != nullptr) {
      const std::uint32_t offsets = absent_ + 1;
      B::ForEach(queue, offsets, body::CountUp{offsets_.Reserve(queue, offsets)});
    }
    if (absent_ == 0) return {};
    const bool lists_keys = candidates_ != nullptr && !counts_by_bloom();
    const body::AbsentKeys of{keys, absent.data(), admitted_places_.Reserve(queue, absent_),
                              lists_keys ? admitted_keys_.Reserve(queue, absent_) : nullptr};
    admitted_ = candidates_ == nullptr ? AdmitByProbability(queue, of) : AdmitByFrequency(queue, store, of);
    return {of.admitted, admitted_};
  }

  // Returns the keys that Admit had, as the candidates' table takes them. They last until the next Admit.
  // REQUIRES: Admit.
  CandidateKeys Candidates() {
    const auto batch_of = [this](const Key* keys, std::size_t size) {
      return BatchView{{keys, size}, {offsets_.data(), size + 1}, {}};
    };
    if (counts_by_bloom())
      return {batch_of(absent_keys_.data(), absent_),
              batch_of(nullptr, 0),
              {raises_.data(), BloomCounter::WindowOf(options_.threshold)}};
    return {batch_of(absent_keys_.data(), absent_), batch_of(admitted_keys_.data(), admitted_)};
  }

  void FreeScratch() {
    admitted_places_ = {};
    admitted_keys_ = {};
    absent_keys_ = {};
    cells_ = {};
    counters_ = {};
    raises_ = {};
    offsets_ = {};
  }

 private:
  bool counts_by_bloom() const { return options_.counter == CounterKind::kBloom; }

  std::uint32_t AdmitByProbability(Queue& queue, const body::AbsentKeys& of) {
    const auto bound = static_cast<std::uint64_t>(std::ldexp(static_cast<double>(options_.probability), 53));
    return B::ForEachNumbered(queue, absent_, body::AdmitByProbability{of, body::Mix64(step_), bound});
  }

  std::uint32_t AdmitByFrequency(Queue& queue, RowStore<B>& store, const body::AbsentKeys& of) {
    Key* const listed = absent_keys_.Reserve(queue, absent_);
    std::uint64_t* const cells = cells_.Reserve(queue, absent_);
    const body::HashTableRef scratch = store.ScratchTable(queue, counters_, absent_);
    B::ForEach(queue, absent_, body::CountOccurrences<typename B::Atomics>{scratch, of, listed, cells});
    if (counts_by_bloom()) return AdmitByBloom(queue, of, scratch, listed, cells);
    candidates_->Bring(queue, listed, absent_);
    return B::ForEachNumbered(queue, absent_,
                              body::AdmitByFrequency{scratch, of, cells, candidates_->hash_table(),
                                                     candidates_->values().scored, options_.threshold});
  }

  // `listed` has the keys, and then their blocks.
  std::uint32_t AdmitByBloom(Queue& queue, const body::AbsentKeys& of, const body::HashTableRef& scratch,
                             Key* listed, const std::uint64_t* cells) {
    using Atomics = typename B::Atomics;
    std::uint32_t* const raises = raises_.Reserve(queue, absent_);
    const auto blocks = static_cast<std::uint32_t>(BloomCounter::BlocksOfBucket(options_.counter_mib));
    B::ForEach(queue, absent_, body::NameBlocks{blocks, listed});
    candidates_->Bring(queue, listed, absent_);
    return B::ForEachNumbered(queue, absent_,
                              body::AdmitByBloom<Atomics>{scratch,
                                                          of,
                                                          cells,
                                                          listed,
                                                          candidates_->hash_table(),
                                                          {candidates_->values().template As<float>()},
                                                          static_cast<std::uint32_t>(options_.threshold),
                                                          raises});
  }

  AdmissionOptions options_;
  std::uint64_t step_ = 0;
  RowStore<B>* candidates_ = nullptr;
  std::uint32_t absent_ = 0;
  std::uint32_t admitted_ = 0;
  typename B::template Scratch<std::uint32_t> admitted_places_;
  typename B::template Scratch<Key> admitted_keys_;
  typename B::template Scratch<Key> absent_keys_;      // with a Bloom counter: their blocks
  typename B::template Scratch<std::uint64_t> cells_;  // of absent keys, in the table of counters
  typename B::template Scratch<body::Cell> counters_;
  typename B::template Scratch<std::uint32_t> raises_;   // of the absent keys, for a Bloom counter
  typename B::template Scratch<std::uint32_t> offsets_;  // of keys that have a bag each
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ADMISSION_INL_
