// ListEvicted: lists the keys whose rows evictions and sweeps have removed from a table, of all ranks, by
// round, a page at a time.
//
// A page ends at the same place on every rank: before the first key that some rank's share of the page has no
// room for. So the next page begins there, and no rank remembers who has read how far.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_LIST_EVICTED_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_LIST_EVICTED_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "server/engine/caller.h"
#include "server/engine/round_outcome.h"
#include "server/engine/schedule/operation.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

struct Round;
struct RoundContext;

struct EvictedPage {
  struct OfRound {
    std::uint64_t round = 0;
    Removal why = Removal::kFull;
    std::vector<Key> keys;  // in no order
  };
  std::vector<OfRound> rounds;       // ascending; those without a key are left out
  std::uint64_t complete_after = 0;  // the pages have all keys of later rounds, up to through_round
  bool gap = false;                  // keys that went after the asker's after_round may be missing
  std::uint64_t through_round = 0;
  bool more = false;  // there is a further page
  std::uint64_t next_after_round = 0;
  std::uint64_t next_keys_seen = 0;
  std::uint64_t generation = 0;  // the table's
};

struct ListEvictedRequest {
  static constexpr Operation kOperation{15};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  // As after_round: a round of an earlier start of the server, so that keys may be missing.
  static constexpr std::uint64_t kOfEarlierStart = std::numeric_limits<std::uint64_t>::max();

  TableId table{0};
  std::uint64_t after_round = 0;    // lists later rounds' keys
  std::uint64_t keys_seen = 0;      // leaves out as many of each rank's keys of round after_round + 1
  std::uint64_t through_round = 0;  // lists no later round's keys; 0: all up to now
  std::function<void(Result<EvictedPage>)> done;
  Caller caller = {};

  struct Asked {
    std::uint64_t after_round = 0;
    std::uint64_t keys_seen = 0;
  };
  Payload payload() const { return Payload(Asked{after_round, keys_seen}); }
};

namespace operations {

struct ListEvicted {
  using Request = ListEvictedRequest;
  // The most keys of a page, of all ranks. The reply is about as large as what else an open call takes.
  static constexpr std::size_t kMostKeys = 8192;

  // Answers once the rounds of the keys are on every rank's disk.
  static void Run(RoundContext& context, const Round& round);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_LIST_EVICTED_H_
