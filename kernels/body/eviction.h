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

// Returns the digit that follows the prefix in a row's place, or kDigits if the row is protected, or its
// place has another prefix.
struct NextDigit {
  const ScoredKey* scored;
  EvictionOrder order;
  PlacePrefix prefix;
  SLOTWISE_HD std::uint32_t operator()(std::uint32_t row) const {
    if ((scored[row].score & kProtected) != 0) return PlacePrefix::kDigits;
    const EvictionPlace place = PlaceOf(order, scored[row]);
    return prefix.Begins(place) ? prefix.DigitOf(place) : PlacePrefix::kDigits;
  }
};

// Protects the rows of keys. Threads that protect the same row write the same.
template <class Atomics>
struct ProtectRows {
  HashTableRef table;
  const Key* keys;
  ScoredKey* scored;

  SLOTWISE_HD const HashTableRef& searched() const { return table; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return keys[i]; }
  SLOTWISE_HD void operator()(std::uint32_t i) const { (*this)(i, table.HashOf(KeyOf(i))); }
  SLOTWISE_HD void operator()(std::uint32_t i, std::uint64_t hash) const {
    const RowIndex row = table.Find(keys[i], hash);
    if (row == kNoRow) return;
    std::uint64_t* const score = &scored[Value(row)].score;
    Atomics::Store(score, Atomics::Load(score) | kProtected);
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { table.Prefetch(hash); }
};

struct EndProtection {
  ScoredKey* scored;
  SLOTWISE_HD void operator()(std::uint32_t row) const {
    const std::uint64_t score = scored[row].score;
    if ((score & kProtected) != 0 && score != kNoScore) scored[row].score = score & ~kProtected;
  }
};

// Lists the keys of rows up to a place, in no order: those that are protected, or those that are not. They
// are numbered (backend/concept.h).
struct ListUpTo {
  static constexpr bool kNumbersMost = false;
  const ScoredKey* scored;
  EvictionOrder order;
  EvictionPlace last;
  bool are_protected;
  Key* keys;  // null: they are only counted
  SLOTWISE_HD bool operator()(std::uint32_t row) const {
    const std::uint64_t score = scored[row].score;
    if (score == kNoScore || ((score & kProtected) != 0) != are_protected) return false;
    return !(last < PlaceOf(order, scored[row]));
  }
  SLOTWISE_HD void Number(std::uint32_t row, bool /*is_listed*/, std::uint32_t number) const {
    if (keys != nullptr) keys[number] = Key{scored[row].key};
  }
};

struct MixKeys {
  const Key* keys;
  SLOTWISE_HD DigestSums operator()(std::uint64_t i) const { return {Mix64(Value(keys[i])), 0}; }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_EVICTION_H_
