// EvictedLog: the keys that evictions and sweeps have removed on this rank, by round, so that clients can ask
// which rows went. It is not kept across a start of the server.
//
// The log is bounded over all tables: it forgets the keys of the oldest rounds first. For each table it knows
// after which round it has all keys.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_EVICTED_LOG_H_
#define SLOTWISE_SERVER_ENGINE_EVICTED_LOG_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "server/engine/round_outcome.h"
#include "slotwise/types.h"

namespace slotwise {

class EvictedLog {
 public:
  // What is charged for a table's keys of a round beside 8 bytes each.
  static constexpr std::uint64_t kBytesOfEntry = 128;

  // Where a table's part of the log begins.
  struct Start {
    std::uint64_t round = 0;  // all keys that went after this round are here
    std::uint64_t lacks = 0;  // 1: keys of the table that went before may be missing; 0: there are none
  };
  // A key of the table that is asked for.
  struct Entry {
    std::uint64_t round = 0;
    Key key{0};
    std::uint64_t why = 0;  // Removal, without padding
  };
  // A place among a table's keys on this rank: before `round`'s key with the index `key`.
  struct Place {
    std::uint64_t round = 0;
    std::uint64_t key = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  // The log holds at most `most_bytes`.
  explicit EvictedLog(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}

  // Begins a table's part: the round made the table, or brought rows of an earlier one (`lacks`). Tables that
  // were not begun are not in the log.
  void Begin(TableId table, std::uint64_t round, bool lacks) { starts_[table] = {round, lacks ? 1U : 0U}; }
  // Ends a table's part.
  void Forget(TableId table);

  // Takes the keys that were evicted or have expired out of `outcome`. Rounds ascend.
  void Append(std::uint64_t round, RoundOutcome& outcome);

  Start StartOf(TableId table) const;
  // Adds a table's keys from `from` on to `entries`, at most `most` of them. Returns the place of the first
  // key that did not fit; kEnd if all did. REQUIRES: most > 0.
  Place List(TableId table, const Place& from, std::size_t most, std::vector<Entry>& entries) const;
  static constexpr Place kEnd{~std::uint64_t{0}, 0};

  // Returns the bytes that are charged now.
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Gone {
    std::uint64_t round = 0;
    TableId table{0};
    Removal why = Removal::kFull;
    std::vector<Key> keys;
    std::uint64_t bytes() const { return kBytesOfEntry + keys.capacity() * sizeof(Key); }
  };

  // Forgets the keys of the oldest round.
  void DropOldest();
  // Removes the table's keys.
  void Remove(TableId table);

  const std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;
  std::deque<Gone> gone_;  // by round
  std::map<TableId, Start> starts_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_EVICTED_LOG_H_
