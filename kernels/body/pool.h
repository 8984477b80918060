// Pooling adds the rows of a bag, times their weights if there are any, in key order from +0. A key without a
// row adds nothing, or the initial values that its row would have.
#ifndef SLOTWISE_KERNELS_BODY_POOL_H_
#define SLOTWISE_KERNELS_BODY_POOL_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/body/initial_value.h"
#include "kernels/body/portable.h"
#include "kernels/body/rows.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise::body {

// The two types below say what a key without a row adds.
struct AddsNothing {
  static constexpr bool kAdds = false;
};
struct AddsInitialValues {
  static constexpr bool kAdds = true;
  InitializerOptions first;
  const Key* keys;

  // Returns a vector of key i's initial values, as a row of Elements has them.
  template <class Element, class Chunk>
  SLOTWISE_HD typename Chunk::Vector Values(Chunk chunk, std::uint32_t i, std::uint32_t vector) const {
    return chunk.Make(vector, [this, key = keys[i]](std::uint32_t element) {
      Element stored;
      StoreVector(&stored, InitialValue(first, key, element));
      return LoadVector<float>(&stored);
    });
  }
};

// Pools the bags of a run, which one tile works on. T is the type that sums are rounded to as they are
// stored; Element is that of the rows' values, each of which is widened before it is added.
template <class T, class Element = float, class Absent = AddsNothing>
struct PoolBags {
  RowsOf<Element> rows;
  const RowIndex* row_of;        // [keys]
  const std::uint32_t* offsets;  // [bags + 1]
  const float* weights;          // [keys], or null: all 1
  // [bags + 1] The place of each bag in `out`; a bag with the next bag's place is left out. If null, bag b
  // goes to place b.
  const std::uint32_t* places;
  T* out;  // [bags][dim]
  Absent absent = {};

  // On a GPU, a compiler that widens numbers of 16 bits as soon as they are there needs more registers.
  static constexpr std::uint32_t kLeastBlocks = std::is_same_v<Element, float> ? 0 : 2;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t first, std::uint32_t last) const {
    if (weights == nullptr) {
      Pool(tile, first, last, [](auto vector, std::uint32_t) { return vector; });
    } else {
      Pool(tile, first, last, [by = weights](auto vector, std::uint32_t i) { return by[i] * vector; });
    }
  }

  // Prefetches only the beginning of a long bag: the processor itself sees far enough ahead from there.
  static constexpr std::uint32_t kAhead = 8;
  void Prefetch(std::uint32_t bag) const {
    constexpr std::uint32_t kMost = 8;
    const std::uint32_t begin = offsets[bag];
    const std::uint32_t keys = offsets[bag + 1] - begin;
    for (std::uint32_t i = begin; i < begin + (keys < kMost ? keys : kMost); ++i) {
      if (row_of[i] != kNoRow) PrefetchRow(rows.Record(row_of[i]), rows.dim);
    }
  }

 private:
  template <class Tile, class Weigh>
  SLOTWISE_HD void Pool(Tile tile, std::uint32_t first, std::uint32_t last, Weigh weigh) const {
    ForEachChunk(tile, rows.dim, [=, *this](auto chunk) {
      if constexpr (Tile::kRowsInFlight == 1) {
        for (std::uint32_t bag = first; bag < last; ++bag) this->PoolBag(chunk, bag, weigh);
      } else {
        // As many bytes are under way, whatever the type of the values.
        constexpr std::uint32_t kMore = sizeof(float) / sizeof(Element);
        this->template PoolRun<Tile::kRowsInFlight * kMore>(chunk, first, last, weigh);
      }
    });
  }

  template <class Chunk, class Weigh>
  SLOTWISE_HD void PoolBag(Chunk chunk, std::uint32_t bag, Weigh weigh) const {
    typename Chunk::Vector sum[Chunk::kVectors] = {};
    for (std::uint32_t i = offsets[bag], end = offsets[bag + 1]; i < end; ++i) {
      if (row_of[i] == kNoRow) {
        if constexpr (Absent::kAdds) {
          for (std::uint32_t v = 0; v < Chunk::kVectors; ++v)
            sum[v] += weigh(absent.template Values<Element>(chunk, i, v), i);
        }
        continue;
      }
      const Element* row = rows.Record(row_of[i]);
      for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) sum[v] += weigh(chunk.LoadRow(row, v), i);
    }
    Store(chunk, bag, sum);
  }

  // Pools bags that follow each other. Loads kRows rows of their keys, across the ends of bags, before it
  // adds the first of them; and the row numbers of the next kRows keys too.
  template <std::uint32_t kRows, class Chunk, class Weigh>
  SLOTWISE_HD void PoolRun(Chunk chunk, std::uint32_t first, std::uint32_t last, Weigh weigh) const {
    const std::uint32_t begin = offsets[first];
    const std::uint32_t end = offsets[last];
    RowIndex next[kRows];
    RowsFrom<kRows>(begin, end, next);
    std::uint32_t bag = first;
    std::uint32_t bag_end = offsets[first + 1];
    typename Chunk::Vector sum[Chunk::kVectors] = {};
    for (std::uint32_t i = begin; i < end; i += kRows) {
      typename Chunk::template Stored<Element> loaded[kRows][Chunk::kVectors];
      bool there[kRows];
      SLOTWISE_UNROLL
      for (std::uint32_t r = 0; r < kRows; ++r) {
        there[r] = next[r] != kNoRow;
        if constexpr (Absent::kAdds) {
          if (!there[r] && i + r < end) {
            there[r] = true;
            SLOTWISE_UNROLL
            for (std::uint32_t v = 0; v < Chunk::kVectors; ++v)
              AsStored(absent.template Values<Element>(chunk, i + r, v), loaded[r][v]);
            continue;
          }
        }
        if (!there[r]) continue;
        const Element* row = rows.Record(next[r]);
        SLOTWISE_UNROLL
        for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) loaded[r][v] = chunk.LoadStored(row, v);
      }
      RowsFrom<kRows>(i + kRows, end, next);
      SLOTWISE_UNROLL
      for (std::uint32_t r = 0; r < kRows; ++r) {
        if (i + r == bag_end && i + r < end) {
          bag_end = FinishBagsBefore(chunk, i + r, bag, sum);
        }
        if (!there[r]) continue;
        SLOTWISE_UNROLL
        for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) sum[v] += weigh(Widened(loaded[r][v]), i + r);
      }
    }
    for (; bag < last; ++bag) Finish(chunk, bag, sum);
  }

  // Loads the row numbers of keys i, i + 1, ...; keys from `end` on have no row.
  template <std::uint32_t kRows>
  SLOTWISE_HD void RowsFrom(std::uint32_t i, std::uint32_t end, RowIndex (&next)[kRows]) const {
    SLOTWISE_UNROLL
    for (std::uint32_t r = 0; r < kRows; ++r) next[r] = i + r < end ? row_of[i + r] : kNoRow;
  }

  // Writes `bag` and the empty bags between it and the bag of `key`. Sets `bag` to the key's bag, and returns
  // that bag's end.
  template <class Chunk>
  SLOTWISE_HD std::uint32_t FinishBagsBefore(Chunk chunk, std::uint32_t key, std::uint32_t& bag,
                                             Vectors<Chunk>& sum) const {
    std::uint32_t end = key;
    while (end == key) {
      Finish(chunk, bag, sum);
      end = offsets[++bag + 1];
    }
    return end;
  }
  template <class Chunk>
  SLOTWISE_HD void Finish(Chunk chunk, std::uint32_t bag, Vectors<Chunk>& sum) const {
    Store(chunk, bag, sum);
    SLOTWISE_UNROLL
    for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) sum[v] = {};
  }
  template <class Chunk>
  SLOTWISE_HD void Store(Chunk chunk, std::uint32_t bag, const Vectors<Chunk>& sum) const {
    if (places != nullptr && places[bag] == places[bag + 1]) return;
    T* pooled = out + static_cast<std::size_t>(places == nullptr ? bag : places[bag]) * rows.dim;
    SLOTWISE_UNROLL
    for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) chunk.Store(pooled, v, sum[v]);
  }
};

// Computes the divisor of a bag for mean and sqrtn: n or √n, where n counts also absent keys and those of
// other ranks. With weights it is Σ w or √Σ w² in key order from +0, which is 0 where weights cancel out.
struct BagDivisor {
  const std::uint32_t* offsets;  // [bags + 1]
  const float* weights;          // of the keys that `offsets` count, or null: all 1
  bool by_root;                  // sqrtn

  SLOTWISE_HD float operator()(std::uint32_t bag) const {
    float n = 0.0F;
    if (weights == nullptr) {
      n = static_cast<float>(offsets[bag + 1] - offsets[bag]);
    } else {
      for (std::uint32_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
        n += by_root ? weights[i] * weights[i] : weights[i];
      }
    }
    return by_root ? sqrtf(n) : n;
  }
};

// REQUIRES: Divides(combiner). `offsets` and `weights` are those of BagDivisor.
inline BagDivisor DivisorOf(Combiner combiner, const std::uint32_t* offsets, const float* weights) {
  return {offsets, weights, combiner == Combiner::kSqrtn};
}

// Divides the pooled values of a bag, which one tile works on. A divisor of 0 gives zeros.
struct DivideBags {
  BagDivisor divisor_of;
  std::uint32_t dim;
  float* values;  // [bags][dim]

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t bag) const {
    const float divisor = divisor_of(bag);
    if (divisor == 1.0F) return;
    float* value = values + static_cast<std::size_t>(bag) * dim;
    for (std::uint32_t j = tile.lane(); j < dim; j += Tile::kLanes) {
      value[j] = divisor == 0.0F ? 0.0F : value[j] / divisor;
    }
  }
};

// Writes the divisor of a bag.
struct WriteDivisors {
  BagDivisor divisor_of;
  float* divisors;  // [bags]
  SLOTWISE_HD void operator()(std::uint32_t bag) const { divisors[bag] = divisor_of(bag); }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_POOL_H_
