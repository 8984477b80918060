// The peers of the hash table: maps of the standard library and of abseil from a 64-bit key to a 32-bit row.
//
// No map allows two threads to write at once, so the maps run on one thread.
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

  // Empties the map and reserves room for `keys`, as far as the map can.
  virtual void Reset(std::uint64_t keys) = 0;
  // Writes the row of each key, or kNoRow for a key without a row.
  virtual void Find(std::span<const Key> keys, RowIndex* rows) = 0;
  // Writes the row of each key, and gives absent keys the next rows.
  virtual void FindOrInsert(std::span<const Key> keys, RowIndex* rows) = 0;

 protected:
  PeerMap() = default;
};

// Makes std::unordered_map, and absl::flat_hash_map if this build has it.
std::vector<std::unique_ptr<PeerMap>> MakePeerMaps();

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_PEERS_MAPS_H_
