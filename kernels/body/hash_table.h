// The hash table: 64-bit keys to rows, open addressing with linear probing, any number of threads at once.
//
// A slot is {key, row}. A slot whose key is kFree is free; keys are only ever added (a rehash copies into a new
// table), so a search ends at the key or at the first free slot of its chain. Adding is one compare-and-swap of the
// key; the one thread that wins it takes the next row and writes it into the slot. Nobody waits for that write: who
// finds a slot with the key already there remembers the slot, and reads its row in the next launch.
//
// kFree is a legal key too. It never enters a chain: it has a slot of its own behind the last one, where kFree means
// free and kFreeKeyIsHere means taken.
//
// Loads while others add are atomic and relaxed; the end of a launch publishes everything it wrote.
// REQUIRES: fewer keys than slots, so that every chain ends. The owner (shard.inl) sees to that before any launch.
#ifndef SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
#define SLOTWISE_KERNELS_BODY_HASH_TABLE_H_

#include <cstdint>

#include "kernels/body/hash.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

struct alignas(16) Slot {
  std::uint64_t key;
  std::uint64_t row;  // a RowIndex; unused while the slot is free
};

// An arbitrary value that no sane numbering of ids begins or ends with; that it is legal all the same, see above.
inline constexpr std::uint64_t kFree = 0xa5b35705f87ab1e5ULL;
inline constexpr std::uint64_t kFreeKeyIsHere = ~kFree;

struct TableRef {
  Slot* slots;         // [mask + 2]: the chains', then the slot of the key kFree
  std::uint64_t mask;  // slots for chains - 1; their number is a power of two

  SLOTWISE_HD std::uint64_t Slots() const { return mask + 2; }
  SLOTWISE_HD std::uint64_t Begin(std::uint64_t key) const { return Mix64(key) & mask; }
  SLOTWISE_HD std::uint64_t Next(std::uint64_t slot) const { return (slot + 1) & mask; }

  SLOTWISE_HD bool Taken(std::uint64_t slot) const { return slots[slot].key != kFree; }
  // REQUIRES: Taken(slot).
  SLOTWISE_HD Key KeyAt(std::uint64_t slot) const { return Key{slot == mask + 1 ? kFree : slots[slot].key}; }
  SLOTWISE_HD RowIndex RowAt(std::uint64_t slot) const {
    return RowIndex{static_cast<std::uint32_t>(slots[slot].row)};
  }

  // The key's row, or kNoRow. REQUIRES: nobody adds during the launch.
  SLOTWISE_HD RowIndex Find(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return Taken(mask + 1) ? RowAt(mask + 1) : kNoRow;
    for (std::uint64_t slot = Begin(wanted);; slot = Next(slot)) {
      const Slot seen = slots[slot];
      if (seen.key == wanted) return RowIndex{static_cast<std::uint32_t>(seen.row)};
      if (seen.key == kFree) return kNoRow;
    }
  }

  struct Claimed {
    std::uint64_t slot;
    bool added;  // true for exactly one claimer of an absent key: it must write the slot's row
  };

  // The key's slot, taken for it if it had none.
  template <class Atomics>
  SLOTWISE_HD Claimed Claim(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return ClaimSlot<Atomics>(mask + 1, kFreeKeyIsHere);
    for (std::uint64_t slot = Begin(wanted);; slot = Next(slot)) {
      const std::uint64_t seen = Atomics::Load(&slots[slot].key);
      if (seen == wanted) return {slot, false};
      if (seen != kFree) continue;
      const std::uint64_t before = Atomics::CompareExchange(&slots[slot].key, kFree, wanted);
      if (before == kFree) return {slot, true};
      if (before == wanted) return {slot, false};
    }
  }

 private:
  template <class Atomics>
  SLOTWISE_HD Claimed ClaimSlot(std::uint64_t slot, std::uint64_t mark) const {
    return {slot, Atomics::CompareExchange(&slots[slot].key, kFree, mark) == kFree};
  }
};

// The bodies of launches, each over an index.

struct FreeSlots {
  TableRef table;
  SLOTWISE_HD void operator()(std::uint64_t slot) const { table.slots[slot] = {kFree, 0}; }
};

struct FindRows {
  TableRef table;
  const Key* keys;
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const { rows[i] = table.Find(keys[i]); }
};

struct RowIsAbsent {
  const RowIndex* rows;
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return rows[i] == kNoRow; }
};

// Adds keys[absent[i]]; the winner of each new key gives it the next row.
template <class Atomics>
struct AddKeys {
  TableRef table;
  const Key* keys;
  const std::uint32_t* absent;
  std::uint64_t* slot_of;     // [absent keys] where the i-th went
  std::uint32_t* rows_used;   // the next row
  std::uint32_t rows_before;  // its value before the launch
  Key* new_keys;              // [new rows] the key of each new row

  SLOTWISE_HD void operator()(std::uint32_t i) const {
    const Key key = keys[absent[i]];
    const auto claimed = table.template Claim<Atomics>(key);
    slot_of[i] = claimed.slot;
    if (!claimed.added) return;
    const std::uint32_t row = Atomics::Increment(rows_used);
    table.slots[claimed.slot].row = row;
    new_keys[row - rows_before] = key;
  }
};

// The launch after AddKeys: every occurrence learns its row.
struct ReadAddedRows {
  TableRef table;
  const std::uint32_t* absent;
  const std::uint64_t* slot_of;
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const { rows[absent[i]] = table.RowAt(slot_of[i]); }
};

// Counts the distinct keys among keys[absent[...]], as additions to a scratch table.
template <class Atomics>
struct CountKeys {
  TableRef scratch;
  const Key* keys;
  const std::uint32_t* absent;
  std::uint32_t* count;

  SLOTWISE_HD void operator()(std::uint32_t i) const {
    if (scratch.template Claim<Atomics>(keys[absent[i]]).added) Atomics::Increment(count);
  }
};

// Copies a slot of the old table into a larger one.
template <class Atomics>
struct Rehash {
  TableRef from;
  TableRef to;

  SLOTWISE_HD void operator()(std::uint64_t slot) const {
    if (!from.Taken(slot)) return;
    to.slots[to.template Claim<Atomics>(from.KeyAt(slot)).slot].row = from.slots[slot].row;
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
