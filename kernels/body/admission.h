// These bodies decide which keys without a row a push gives one (docs/semantics.md, "Admission").
//
// By frequency, a key is admitted once the occurrences that the candidates' table has counted and those in
// the push reach the threshold. A scratch table counts those in the push, of any number of threads at once.
#ifndef SLOTWISE_KERNELS_BODY_ADMISSION_H_
#define SLOTWISE_KERNELS_BODY_ADMISSION_H_

#include <cstdint>

#include "kernels/body/hash.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/rows.h"
#include "kernels/eviction_place.h"
#include "slotwise/types.h"

namespace slotwise::body {

// The keys of a batch that have no row, and the lists of those that are admitted.
struct AbsentKeys {
  const Key* keys;              // [keys]
  const std::uint32_t* absent;  // [n] places in `keys`
  std::uint32_t* admitted;      // [admitted] such places
  Key* admitted_keys;           // [admitted]; null: not wanted

  SLOTWISE_HD Key operator[](std::uint32_t i) const { return keys[absent[i]]; }
  SLOTWISE_HD void Admit(std::uint32_t i, std::uint32_t number) const {
    admitted[number] = absent[i];
    if (admitted_keys != nullptr) admitted_keys[number] = (*this)[i];
  }
};

// Counts an absent key's occurrences in the row of the key's cell, from 0, and lists the key and its cell.
template <class Atomics>
struct CountOccurrences {
  HashTableRef scratch;
  AbsentKeys of;
  Key* listed;           // [n]
  std::uint64_t* cells;  // [n]

  SLOTWISE_HD const HashTableRef& searched() const { return scratch; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return of[i]; }
  SLOTWISE_HD void operator()(std::uint32_t i) const { (*this)(i, scratch.HashOf(KeyOf(i))); }
  SLOTWISE_HD void operator()(std::uint32_t i, std::uint64_t hash) const {
    const std::uint64_t cell = scratch.template Claim<Atomics>(KeyOf(i), hash).cell;
    Atomics::Add(&scratch.cells[cell].row, std::uint64_t{1});
    cells[i] = cell;
    listed[i] = KeyOf(i);
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { scratch.Prefetch(hash); }
};

// Lists the admitted ones of the absent keys, in no order. They are numbered (backend/concept.h).
struct AdmitByFrequency {
  static constexpr bool kNumbersMost = false;
  HashTableRef scratch;
  AbsentKeys of;
  const std::uint64_t* cells;  // of CountOccurrences
  HashTableRef candidates;
  const ScoredKey* scored;  // of the candidates' table
  std::uint64_t threshold;

  SLOTWISE_HD const HashTableRef& searched() const { return candidates; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return of[i]; }
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return (*this)(i, candidates.HashOf(KeyOf(i))); }
  SLOTWISE_HD bool operator()(std::uint32_t i, std::uint64_t hash) const {
    const std::uint64_t now = scratch.cells[cells[i]].row;
    const RowIndex row = candidates.Find(KeyOf(i), hash);
    return now + (row == kNoRow ? 0 : OccurrenceScore::Of(scored[Value(row)].score).count) >= threshold;
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_admitted*/, std::uint32_t number) const {
    of.Admit(i, number);
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { candidates.Prefetch(hash); }
};

// Does the same by a draw from the key and the step: 53 bits of a hash, below `bound`.
struct AdmitByProbability {
  static constexpr bool kNumbersMost = false;
  AbsentKeys of;
  std::uint64_t mixed_step;  // Mix64 of the table's step
  std::uint64_t bound;       // the probability in units of 2^-53

  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    return Mix64(Value(of[i]) + mixed_step) >> 11 < bound;
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_admitted*/, std::uint32_t number) const {
    of.Admit(i, number);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ADMISSION_H_
