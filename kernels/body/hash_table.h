// The hash table: 64-bit keys to rows, open addressing with double hashing, any number of threads at once.
//
// A slot is {key, row}. A slot whose key is kFree is free; slots are only ever taken (a rehash copies into a new
// table), so a search ends at the key or at the first free slot that it looks at. Adding is one compare-and-swap of the
// key; the one thread that wins it gives the slot its row. Nobody waits for that: who finds a slot with the key already
// there remembers the slot, and reads its row in the next launch.
//
// A search looks at slots by pairs, 32 bytes, which is what a GPU reads from memory at once; first at both pairs of one
// cache line of four slots, then at lines that are an odd number of lines apart, which is another for other keys and in
// the end leads to every line. At 3 slots of 4 taken, 1.2 lines and 1.5 pairs a key that is there; searching line after
// line, where keys crowd, it would be 1.3 and 1.7, and far more for a key that is not there.
//
// Erasing leaves the key in its slot, with kNoRow for its row: the slot is dead. Adding the key again revives it (a
// compare-and-swap of the row has one winner), and a rehash leaves dead slots behind.
//
// kFree is a legal key too. It is never searched for: it has a slot of its own behind the last one, where kFree means
// free and kFreeKeyIsHere means taken.
//
// Loads while others add are atomic and relaxed; the end of a launch publishes everything it wrote.
// REQUIRES: fewer keys than slots, so that every search ends. The owner (shard.inl) sees to that before any launch.
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

// The row of a slot whose key was erased.
inline constexpr std::uint64_t kDead = Value(kNoRow);

struct TableRef {
  static constexpr std::uint64_t kLeastSlots = 4;

  Slot* slots;         // [mask + 2]: those for searches, then that of the key kFree
  std::uint64_t mask;  // slots for searches - 1; their number is a power of two, and at least kLeastSlots

  SLOTWISE_HD std::uint64_t Slots() const { return mask + 2; }

  // The pairs of slots that a key's search looks at: `slot` and the one behind it.
  struct Search {
    std::uint64_t slot;
    std::uint64_t mask;
    std::uint64_t begin;
    std::uint64_t step;  // from line to line

    SLOTWISE_HD void Next() {
      const bool line_is_done = ((slot ^ begin) & 2) != 0;
      slot ^= 2;
      if (line_is_done) slot = (slot + step) & mask;
    }
  };
  SLOTWISE_HD Search SearchFor(std::uint64_t key) const {
    constexpr std::uint64_t kSlotsOfLine = 4;
    const std::uint64_t hash = Mix64(key);
    const std::uint64_t begin = hash & mask & ~std::uint64_t{1};
    return {begin, mask, begin, kSlotsOfLine * (hash >> 32 | 1)};
  }

  // Taken, and its key was not erased.
  SLOTWISE_HD bool Live(std::uint64_t slot) const {
    return slots[slot].key != kFree && slots[slot].row != kDead;
  }
  // REQUIRES: the slot is taken.
  SLOTWISE_HD Key KeyAt(std::uint64_t slot) const { return Key{slot == mask + 1 ? kFree : slots[slot].key}; }
  SLOTWISE_HD RowIndex RowAt(std::uint64_t slot) const {
    return RowIndex{static_cast<std::uint32_t>(slots[slot].row)};
  }

  // Where the key's search begins: most end in that cache line.
  void Prefetch(Key key) const { PrefetchBytes(&slots[SearchFor(Value(key)).slot], sizeof(Slot)); }

  // The key's row, or kNoRow. REQUIRES: nobody adds during the launch.
  SLOTWISE_HD RowIndex Find(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return Live(mask + 1) ? RowAt(mask + 1) : kNoRow;
    for (Search at = SearchFor(wanted);; at.Next()) {
      const Slot first = slots[at.slot];
      const Slot second = slots[at.slot + 1];
      if (first.key == wanted) return RowIndex{static_cast<std::uint32_t>(first.row)};
      if (first.key == kFree) return kNoRow;
      if (second.key == wanted) return RowIndex{static_cast<std::uint32_t>(second.row)};
      if (second.key == kFree) return kNoRow;
    }
  }

  // The key's slot, or Slots() if no slot was ever taken for it. REQUIRES: nobody adds during the launch.
  SLOTWISE_HD std::uint64_t SlotOf(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return slots[mask + 1].key == kFree ? Slots() : mask + 1;
    for (Search at = SearchFor(wanted);; at.Next()) {
      for (std::uint64_t slot = at.slot; slot < at.slot + 2; ++slot) {
        if (slots[slot].key == wanted) return slot;
        if (slots[slot].key == kFree) return Slots();
      }
    }
  }

  struct Claimed {
    std::uint64_t slot;
    bool added;  // true for exactly one claimer of a key without a slot: the slot's row is its to write
  };

  // True for exactly one of those who ask for a dead slot: its row is theirs to write.
  template <class Atomics>
  SLOTWISE_HD bool Revive(std::uint64_t slot) const {
    return Atomics::Load(&slots[slot].row) == kDead &&
           Atomics::CompareExchange(&slots[slot].row, kDead, 0) == kDead;
  }

  // The key's slot, taken for it if it had none.
  template <class Atomics>
  SLOTWISE_HD Claimed Claim(Key key) const {
    const std::uint64_t wanted = Value(key);
    if (wanted == kFree) return ClaimSlot<Atomics>(mask + 1, kFreeKeyIsHere);
    for (Search at = SearchFor(wanted);; at.Next()) {
      const std::uint64_t slot = at.slot;
      const std::uint64_t first = Atomics::Load(&slots[slot].key);
      const std::uint64_t second = Atomics::Load(&slots[slot + 1].key);
      if (const Trial trial = Try<Atomics>(slot, first, wanted); trial != Trial::kTaken)
        return {slot, trial == Trial::kAdded};
      if (const Trial trial = Try<Atomics>(slot + 1, second, wanted); trial != Trial::kTaken)
        return {slot + 1, trial == Trial::kAdded};
    }
  }

 private:
  enum class Trial : std::uint8_t { kTaken, kThere, kAdded };

  // Puts the key into a slot that was seen to hold `seen`, unless another key is there.
  template <class Atomics>
  SLOTWISE_HD Trial Try(std::uint64_t slot, std::uint64_t seen, std::uint64_t wanted) const {
    if (seen == wanted) return Trial::kThere;
    if (seen != kFree) return Trial::kTaken;
    const std::uint64_t before = Atomics::CompareExchange(&slots[slot].key, kFree, wanted);
    if (before == kFree) return Trial::kAdded;
    return before == wanted ? Trial::kThere : Trial::kTaken;
  }

  template <class Atomics>
  SLOTWISE_HD Claimed ClaimSlot(std::uint64_t slot, std::uint64_t mark) const {
    return {slot, Atomics::CompareExchange(&slots[slot].key, kFree, mark) == kFree};
  }
};

// The bodies of launches, each over an index.

// How many searches are under way at once on the CPU: about as many as its caches can wait for, and some.
inline constexpr std::uint32_t kProbesAhead = 20;

struct FreeSlots {
  TableRef table;
  SLOTWISE_HD void operator()(std::uint64_t slot) const { table.slots[slot] = {kFree, 0}; }
};

struct FindRows {
  TableRef table;
  const Key* keys;
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const { rows[i] = table.Find(keys[i]); }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t i) const { table.Prefetch(keys[i]); }
};

// The same, and a list of the keys without a row, in no order. Numbered (backend/concept.h): the absent ones.
struct FindRowsAndAbsent {
  static constexpr bool kNumbersMost = false;
  FindRows find;
  std::uint32_t* absent;

  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    find(i);
    return find.rows[i] == kNoRow;
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_absent*/, std::uint32_t number) const {
    absent[number] = i;
  }

  static constexpr std::uint32_t kAhead = FindRows::kAhead;
  void Prefetch(std::uint32_t i) const { find.Prefetch(i); }
};

struct RowIsThere {
  const RowIndex* rows;
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return rows[i] != kNoRow; }
};

// Adding keys takes two launches. The first claims a slot for each of keys[absent[...]], or finds it taken; of equal keys
// one wins, and gets a row. The others can read it in the next.

// Rows to hand out: those of erased keys first, the last erased first, then those never used.
struct RowSupply {
  const RowIndex* erased;
  std::uint32_t erased_rows;
  std::uint32_t first_unused;

  SLOTWISE_HD RowIndex operator()(std::uint32_t n) const {
    return n < erased_rows ? erased[erased_rows - 1 - n] : RowIndex{first_unused + (n - erased_rows)};
  }
};

// Where a key is, and whether it won the slot just now.
struct ClaimedSlot {
  std::uint64_t slot;
  bool won;
  SLOTWISE_HD explicit operator bool() const { return won; }
};

// Which keys of a batch are meant: those with the listed numbers, or all.
struct Chosen {
  const std::uint32_t* listed;  // null: all
  SLOTWISE_HD std::uint32_t operator[](std::uint32_t i) const { return listed == nullptr ? i : listed[i]; }
};

// No slot: the key won its own, and knows its row.
inline constexpr std::uint64_t kNoSlot = ~std::uint64_t{0};

// Numbered: the winners. The n-th gets the n-th row.
template <class Atomics>
struct AddKeys {
  static constexpr bool kNumbersMost = true;
  TableRef table;
  const Key* keys;
  Chosen chosen;
  RowSupply supply;
  std::uint64_t* lost;  // [chosen keys] the slot of those that did not win it
  RowIndex* rows;       // [keys]
  Key* new_keys;        // [new rows]
  RowIndex* new_rows;   // [new rows]

  SLOTWISE_HD ClaimedSlot operator()(std::uint32_t i) const {
    const auto claimed = table.template Claim<Atomics>(keys[chosen[i]]);
    const bool won = claimed.added || table.template Revive<Atomics>(claimed.slot);
    lost[i] = won ? kNoSlot : claimed.slot;
    return {claimed.slot, won};
  }
  SLOTWISE_HD void Number(std::uint32_t i, ClaimedSlot claimed, std::uint32_t number) const {
    const RowIndex row = supply(number);
    Atomics::Store(&table.slots[claimed.slot].row, Value(row));
    rows[chosen[i]] = row;
    new_keys[number] = keys[chosen[i]];
    new_rows[number] = row;
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t i) const { table.Prefetch(keys[chosen[i]]); }
};

struct ReadRowsOfOthers {
  TableRef table;
  Chosen chosen;
  const std::uint64_t* lost;
  RowIndex* rows;
  SLOTWISE_HD void operator()(std::uint32_t i) const {
    if (lost[i] != kNoSlot) rows[chosen[i]] = table.RowAt(lost[i]);
  }
};

// Erases keys[i]: its slot is dead, its row free to be handed out again. Numbered: keys that had a row, by that row.
template <class Atomics>
struct EraseKeys {
  static constexpr bool kNumbersMost = false;
  struct Erased {
    std::uint64_t row;
    SLOTWISE_HD explicit operator bool() const { return row != kDead; }
  };

  TableRef table;
  const Key* keys;
  RowIndex* erased;  // grows from the front

  SLOTWISE_HD Erased operator()(std::uint32_t i) const {
    const std::uint64_t slot = table.SlotOf(keys[i]);
    if (slot == table.Slots()) return {kDead};
    const std::uint64_t row = Atomics::Load(&table.slots[slot].row);
    const bool mine = row != kDead && Atomics::CompareExchange(&table.slots[slot].row, row, kDead) == row;
    return {mine ? row : kDead};
  }
  SLOTWISE_HD void Number(std::uint32_t /*i*/, Erased key, std::uint32_t number) const {
    erased[number] = RowIndex{static_cast<std::uint32_t>(key.row)};
  }
};

// Which key has which row: of rows that no key has, kFree, and that of the key kFree itself likewise.

struct FillKeys {
  Key* keys;  // [rows]
  SLOTWISE_HD void operator()(std::uint32_t row) const { keys[row] = Key{kFree}; }
};

struct CopyKeyOfRow {
  TableRef table;
  Key* keys;  // [rows]
  SLOTWISE_HD void operator()(std::uint64_t slot) const {
    if (table.Live(slot)) keys[Value(table.RowAt(slot))] = table.KeyAt(slot);
  }
};

struct KeyIsNotFree {
  SLOTWISE_HD bool operator()(Key key) const { return Value(key) != kFree; }
};

// Counts the distinct keys among keys[absent[...]], as additions to a scratch table. Numbered: each key once.
template <class Atomics>
struct CountKeys {
  static constexpr bool kNumbersMost = true;
  TableRef scratch;
  const Key* keys;
  const std::uint32_t* absent;

  SLOTWISE_HD bool operator()(std::uint32_t i) const {
    return scratch.template Claim<Atomics>(keys[absent[i]]).added;
  }
  SLOTWISE_HD void Number(std::uint32_t /*i*/, bool /*is_first*/, std::uint32_t /*number*/) const {}

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t i) const { scratch.Prefetch(keys[absent[i]]); }
};

// Copies a slot of the old table into another.
template <class Atomics>
struct Rehash {
  TableRef from;
  TableRef to;

  SLOTWISE_HD void operator()(std::uint64_t slot) const {
    if (!from.Live(slot)) return;
    to.slots[to.template Claim<Atomics>(from.KeyAt(slot)).slot].row = from.slots[slot].row;
  }

  static constexpr std::uint64_t kAhead = kProbesAhead;
  void Prefetch(std::uint64_t slot) const {
    if (from.Live(slot)) to.Prefetch(from.KeyAt(slot));
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_HASH_TABLE_H_
