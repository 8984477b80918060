// The peers of the hash table: maps of the standard library and of abseil, from a 64-bit key to a 32-bit row.
//
// None of them may be written by two threads at once, so they run on one.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_BENCH_PEERS_MAPS_H_
#define SLOTWISE_BENCH_PEERS_MAPS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slotwise/types.h"

namespace slotwise::bench {

class PeerMap {
 public:
  virtual ~PeerMap() = default;
  PeerMap(const PeerMap&) = delete;
  PeerMap& operator=(const PeerMap&) = delete;

  virtual std::string name() const = 0;

  // Empties it and makes room for `keys`, as far as the map can beforehand.
  virtual void Reset(std::uint64_t keys) = 0;
  // Writes the row of each key, kNoRow if it has none.
  virtual void Find(std::span<const Key> keys, RowIndex* rows) = 0;
  // The same, and absent keys get the next rows.
  virtual void FindOrInsert(std::span<const Key> keys, RowIndex* rows) = 0;

 protected:
  PeerMap() = default;
};

// std::unordered_map; and absl::flat_hash_map if this build has it.
std::vector<std::unique_ptr<PeerMap>> MakePeerMaps();

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_PEERS_MAPS_H_
