// RoundOutcome: effects of a round on this rank's tables that neither its request nor its record shows.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_ROUND_OUTCOME_H_
#define SLOTWISE_SERVER_ENGINE_ROUND_OUTCOME_H_

#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "slotwise/types.h"

namespace slotwise {

// Says why a row was removed.
enum class Removal : std::uint8_t {
  kErased,   // a client erased the key
  kFull,     // a batch needed room in a table that evicts
  kExpired,  // the row was older than the table's time to live
  kAsked,    // an operator asked for fewer rows (EvictRows)
};

struct RoundOutcome {
  struct Removed {
    TableId table{0};
    Removal why = Removal::kErased;
    bool listed = true;     // false: there were too many keys to list, or no memory, and `keys` is empty
    std::vector<Key> keys;  // in no order
  };
  // The keys whose rows the round removed on this rank. A round of lookups that evicts more than once may
  // have made such a row, or may make it again. Tables that were dropped or replaced as a whole are left out.
  std::vector<Removed> removed;

  // What is listed: erased keys or not, and of evicted and expired ones the most in a round.
  bool lists_erased = true;
  std::uint64_t most_keys = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t listed_keys = 0;  // evicted and expired ones, of the current round

  // Forgets a round's effects.
  void Clear() {
    removed.clear();
    listed_keys = 0;
  }
};

// Returns the list for the keys that a client erases from a table; null if they are not listed.
inline std::vector<Key>* ErasedFrom(RoundOutcome* outcome, TableId table) {
  if (outcome == nullptr || !outcome->lists_erased) return nullptr;
  return &outcome->removed.emplace_back(table).keys;
}

// Returns the list, with its capacity, for the keys of the `rows` rows that a round evicts from a table or
// lets expire; null if they are not listed.
inline std::vector<Key>* EvictedFrom(RoundOutcome* outcome, TableId table, Removal why, std::uint64_t rows) {
  if (outcome == nullptr || rows == 0) return nullptr;
  RoundOutcome::Removed& removed = outcome->removed.emplace_back(table, why, false);
  if (rows > outcome->most_keys - outcome->listed_keys) return nullptr;
  outcome->listed_keys += rows;
  try {
    removed.keys.reserve(rows);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  removed.listed = true;
  return &removed.keys;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ROUND_OUTCOME_H_
