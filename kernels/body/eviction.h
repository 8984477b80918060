// These bodies find the rows that an eviction removes. A row's place in the order of eviction is 128 bits:
// the number of its score, and then TieOf its key, which breaks ties alike on every rank and backend. The
// last place to go is found digit by digit, from the highest bit on: each launch counts the rows whose places
// begin with what is known, by the digit that comes next.
#ifndef SLOTWISE_KERNELS_BODY_EVICTION_H_
#define SLOTWISE_KERNELS_BODY_EVICTION_H_

#include <cstdint>

#include "kernels/body/hash.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/rows.h"
#include "kernels/eviction_place.h"
#include "kernels/shard.h"
#include "slotwise/types.h"

namespace slotwise::body {

// REQUIRES: the row has a score.
SLOTWISE_HD constexpr EvictionPlace PlaceOf(const EvictionOrder& order, const ScoredKey& row) {
  return {order.NumberOf(row.score & ~kProtected), TieOf(row.key)};
}

// The rows that a launch works on: those listed, or the first ones.
struct Rows {
  const RowIndex* listed = nullptr;
  SLOTWISE_HD std::uint32_t operator[](std::uint32_t i) const {
    return listed == nullptr ? i : Value(listed[i]);
  }
};

// Returns the digit that follows the prefix in a row's place, or kDigits if the row is protected, or its
// place has another prefix.
struct NextDigit {
  const ScoredKey* scored;
  Rows rows;
  EvictionOrder order;
  PlacePrefix prefix;
  SLOTWISE_HD std::uint32_t operator()(std::uint32_t i) const {
    const ScoredKey row = scored[rows[i]];
    if ((row.score & kProtected) != 0) return PlacePrefix::kDigits;
    const EvictionPlace place = PlaceOf(order, row);
    return prefix.Begins(place) ? prefix.DigitOf(place) : PlacePrefix::kDigits;
  }
};

struct NoRows {
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const { rows[i] = kNoRow; }
};

// Protects the rows of keys, and lists each key's row, or kNoRow. Threads that protect the same row write the
// same.
template <class Atomics>
struct ProtectRows {
  HashTableRef table;
  const Key* keys;
  ScoredKey* scored;
  RowIndex* rows;  // null: not wanted

  SLOTWISE_HD const HashTableRef& searched() const { return table; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return keys[i]; }
  SLOTWISE_HD void operator()(std::uint32_t i) const { (*this)(i, table.HashOf(KeyOf(i))); }
  SLOTWISE_HD void operator()(std::uint32_t i, std::uint64_t hash) const {
    const RowIndex row = table.Find(keys[i], hash);
    if (rows != nullptr) rows[i] = row;
    if (row == kNoRow) return;
    std::uint64_t* const score = &scored[Value(row)].score;
    Atomics::Store(score, Atomics::Load(score) | kProtected);
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { table.Prefetch(hash); }
};

// Ends the protection of rows, and lists the keys of those up to a place, in no order. Of threads with the
// same row one lists the key. The keys are numbered (backend/concept.h).
template <class Atomics>
struct EndProtection {
  static constexpr bool kNumbersMost = false;
  ScoredKey* scored;
  Rows rows;
  EvictionOrder order;
  EvictionPlace last;
  Key* keys;  // null: they are only counted
  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    const std::uint32_t row = rows[i];
    if (row == Value(kNoRow)) return false;
    std::uint64_t* const score = &scored[row].score;
    const std::uint64_t before = Atomics::Load(score);
    if ((before & kProtected) == 0 || before == kNoScore) return false;
    if (Atomics::CompareExchange(score, before, before & ~kProtected) != before) return false;
    return !(last < PlaceOf(order, {scored[row].key, before}));
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_listed*/, std::uint32_t number) const {
    if (keys != nullptr) keys[number] = Key{scored[rows[i]].key};
  }
};

// Lists rows up to a place that are not protected, in no order: their numbers, or their keys, or only counts
// them. They are numbered (backend/concept.h).
struct ListUpTo {
  static constexpr bool kNumbersMost = false;
  const ScoredKey* scored;
  Rows rows = {};
  EvictionOrder order;
  EvictionPlace last;
  RowIndex* listed = nullptr;
  Key* keys = nullptr;
  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    const ScoredKey row = scored[rows[i]];
    return (row.score & kProtected) == 0 && !(last < PlaceOf(order, row));  // kNoScore has that bit too
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_listed*/, std::uint32_t number) const {
    if (listed != nullptr) listed[number] = RowIndex{rows[i]};
    if (keys != nullptr) keys[number] = Key{scored[rows[i]].key};
  }
};

struct MixKeys {
  const Key* keys;
  SLOTWISE_HD DigestSums operator()(std::uint64_t i) const { return {Mix64(Value(keys[i])), 0}; }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_EVICTION_H_
