// RoundOutcome: effects of a round on this rank's tables that neither its request nor its record shows.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_ROUND_OUTCOME_H_
#define SLOTWISE_SERVER_ENGINE_ROUND_OUTCOME_H_

#include <vector>

#include "slotwise/types.h"

namespace slotwise {

struct RoundOutcome {
  struct Removed {
    TableId table{0};
    std::vector<Key> keys;  // in no order
  };
  // The keys whose rows the round removed on this rank, for whatever reason. A round of lookups that evicts
  // more than once may have made such a row, or may make it again. Tables that were dropped or replaced as a
  // whole are left out.
  std::vector<Removed> removed;
};

// Returns the list for the keys whose rows a round removes from a table; null if `outcome` is null.
inline std::vector<Key>* RemovedFrom(RoundOutcome* outcome, TableId table) {
  return outcome == nullptr ? nullptr : &outcome->removed.emplace_back(table).keys;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ROUND_OUTCOME_H_
