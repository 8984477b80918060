// Which pooled bags travel between ranks, where they lie on the way, and what is done with them at the ends.
//
// A rank sends the partial sum of a bag only if it owns one of the bag's keys, and it owns few of them when there are few
// keys a bag and many ranks. Who sends what needs no messages: every rank sees the whole batch, and knows every key's
// owner. Bags travel in the order of the batch, so those for one rank lie together, and those from one rank too.
//
// Gradients take the same ways back: a bag's gradient goes to every rank that owns one of its keys.
#ifndef SLOTWISE_KERNELS_BODY_TRAFFIC_H_
#define SLOTWISE_KERNELS_BODY_TRAFFIC_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/owner.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// What a mask of ranks holds.
inline constexpr std::uint32_t kMostRanks = 64;

// 1 for each bag that this rank sends, else 0; their running sum is where it lies among what is sent.
struct CountBagsToSend {
  const std::uint32_t* offsets;  // [bags + 1] into this rank's keys
  std::uint32_t* counts;         // [bags]
  SLOTWISE_HD void operator()(std::uint32_t bag) const {
    counts[bag] = offsets[bag] < offsets[bag + 1] ? 1 : 0;
  }
};

// The same of what this rank receives, rank by rank: for each of this rank's bags, which ranks own keys of the bag.
// Owner: see owner.h.
template <class Owner>
struct CountBagsToReceive {
  Owner owner;
  const Key* keys;               // everybody's
  const std::uint32_t* offsets;  // [bags + 1] of this rank's bags, into `keys`
  std::uint32_t first_bag;       // of this rank's bags, among all
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

// Brings together, for the host, what a running sum says at the borders between ranks.
struct ReadBorders {
  const std::uint32_t* sums;
  std::uint32_t* out;                     // [ranks + 1]
  std::uint32_t borders[kMostRanks + 1];  // [ranks + 1] places in `sums`
  SLOTWISE_HD void operator()(std::uint32_t i) const { out[i] = sums[borders[i]]; }
};

// Where rank r's copy of this rank's bag b lies: place[r · bags + b], if the next one is another.
struct BagCopies {
  const std::uint32_t* places;  // [ranks · bags + 1]
  std::uint32_t bags;
  std::uint32_t ranks;
  std::uint32_t dim;

  // visit(its place among the numbers that travel) for each copy of the bag, in rank order.
  template <class Visit>
  SLOTWISE_HD void ForEach(std::uint32_t bag, Visit visit) const {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const std::uint32_t* place = places + static_cast<std::size_t>(r) * bags + bag;
      if (place[0] != place[1]) visit(static_cast<std::size_t>(place[0]) * dim);
    }
  }
};

// The addends (sum_in_rank_order.h) of each of this rank's bags: the partial sums that came. T: what they came as.
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

// A tile a bag of this rank: its gradient, once for each rank that owns one of its keys.
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

#endif  // SLOTWISE_KERNELS_BODY_TRAFFIC_H_
