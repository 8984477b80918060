// These bodies plan which pooled bags travel between ranks and where the bags lie on the way, and do the work
// at both ends.
//
// A rank sends the partial sum of a bag only if it owns one of the bag's keys; with few keys a bag and many
// ranks, those are few bags. The plan needs no messages: every rank sees the whole batch, and knows every
// key's owner. Bags travel in the order of the batch, so those for one rank lie together, and those from one
// rank too.
//
// Gradients go back the same way: a bag's gradient goes to every rank that owns one of its keys.
#ifndef SLOTWISE_KERNELS_BODY_ALL_TO_ALL_H_
#define SLOTWISE_KERNELS_BODY_ALL_TO_ALL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/owner.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// The most ranks that a mask of ranks can hold.
inline constexpr std::uint32_t kMostRanks = 64;

// Writes 1 for each bag that this rank sends, else 0. The running sum of these says where a bag lies among
// those sent.
struct CountBagsToSend {
  const std::uint32_t* offsets;  // [bags + 1] into this rank's keys
  std::uint32_t* counts;         // [bags]
  SLOTWISE_HD void operator()(std::uint32_t bag) const {
    counts[bag] = offsets[bag] < offsets[bag + 1] ? 1 : 0;
  }
};

// Writes 1 for each of this rank's bags and each rank that owns a key of the bag, and so sends a partial sum,
// else 0. Owner: see owner.h.
template <class Owner>
struct CountBagsToReceive {
  Owner owner;
  const Key* keys;               // of all ranks
  const std::uint32_t* offsets;  // [bags + 1] of this rank's bags, into `keys`
  std::uint32_t first_bag;       // the first of this rank's bags, among all ranks' bags
  std::uint32_t bags;
  std::uint32_t ranks;
  std::uint32_t* counts;  // [ranks][bags]

  SLOTWISE_HD void operator()(std::uint32_t bag) const {
    std::uint64_t owners = 0;
    for (std::uint32_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      owners |= std::uint64_t{1} << owner(first_bag + bag, keys[i]);
    }
    for (std::uint32_t r = 0; r < ranks; ++r) {
      counts[static_cast<std::size_t>(r) * bags + bag] = owners >> r & 1;
    }
  }
};

// Copies a running sum's values at the borders between ranks to one place, from which they go to the host.
struct ReadBorders {
  const std::uint32_t* sums;
  std::uint32_t* out;                     // [ranks + 1]
  std::uint32_t borders[kMostRanks + 1];  // [ranks + 1] places in `sums`
  SLOTWISE_HD void operator()(std::uint32_t i) const { out[i] = sums[borders[i]]; }
};

// The copies of this rank's bags that travel. Rank r's copy of bag b lies at places[r · bags + b], and the
// copy exists if the next place differs.
struct BagCopies {
  const std::uint32_t* places;  // [ranks · bags + 1]
  std::uint32_t bags;
  std::uint32_t ranks;
  std::uint32_t dim;

  // Calls visit(place) for each copy of the bag, in rank order, with the copy's place among the numbers that
  // travel.
  template <class Visit>
  SLOTWISE_HD void ForEach(std::uint32_t bag, Visit visit) const {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const std::uint32_t* place = places + static_cast<std::size_t>(r) * bags + bag;
      if (place[0] != place[1]) visit(static_cast<std::size_t>(place[0]) * dim);
    }
  }
};

// The partial sums that were received, as addends of this rank's bags (sum_in_rank_order.h). T is their type.
template <class T>
struct ReceivedPartialSums {
  BagCopies copies;
  const T* received;

  SLOTWISE_HD std::size_t First(std::uint32_t bag) const {
    return static_cast<std::size_t>(bag) * copies.dim;
  }
  SLOTWISE_HD std::uint32_t Length(std::uint32_t /*bag*/) const { return copies.dim; }
  template <class Visit>
  SLOTWISE_HD void ForEach(std::uint32_t bag, Visit visit) const {
    copies.ForEach(bag, [&](std::size_t place) { visit(received + place); });
  }
};

// Copies the gradient of a bag of this rank, which one tile works on, once for each rank that owns a key of
// the bag.
struct CopyGradients {
  BagCopies copies;
  const float* gradients;  // [bags][dim]
  float* sent;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t bag) const {
    const float* gradient = gradients + static_cast<std::size_t>(bag) * copies.dim;
    ForEachChunk(tile, copies.dim, [&](auto chunk) {
      using Chunk = decltype(chunk);
      Vectors<Chunk> values;
      for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) values[v] = chunk.Load(gradient, v);
      copies.ForEach(bag, [&](std::size_t place) {
        for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) chunk.Store(sent + place, v, values[v]);
      });
    });
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ALL_TO_ALL_H_
