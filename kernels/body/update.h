// These bodies turn the gradients of bags into updated rows: each row in the batch takes one optimizer step.
//
// A stable sort by row brings the occurrences of each row together, in batch order: a segment. A segment's
// gradient is summed as a tree: each block of kSumBlock occurrences is added in order, then each block of
// kSumBlock block sums, and so on until one sum is left. The tree is the same on every machine.
//
// Most segments are one block: ApplyOptimizerToShort sums such a segment and applies the optimizer in one go.
// Longer segments are summed level by level (long_sums.h); then ApplyOptimizerToLong applies the optimizer.
#ifndef SLOTWISE_KERNELS_BODY_UPDATE_H_
#define SLOTWISE_KERNELS_BODY_UPDATE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/body/optimizer.h"
#include "kernels/body/portable.h"
#include "kernels/body/rounding.h"
#include "kernels/body/rows.h"
#include "slotwise/types.h"

namespace slotwise::body {

inline constexpr std::uint32_t kSumBlock = 32;

SLOTWISE_HD constexpr std::uint32_t BlocksOf(std::uint32_t items) {
  return items / kSumBlock + (items % kSumBlock == 0 ? 0 : 1);
}

// Writes for every key its bag, or the place of that bag's gradient.
struct ExpandBags {
  const std::uint32_t* offsets;  // [bags + 1]
  const std::uint32_t* places;   // [bags], or null: the bag itself
  std::uint32_t* bag_of;         // [keys]
  SLOTWISE_HD void operator()(std::uint32_t bag) const {
    const std::uint32_t written = places == nullptr ? bag : places[bag];
    for (std::uint32_t i = offsets[bag]; i < offsets[bag + 1]; ++i) bag_of[i] = written;
  }
};

// Gives occurrences without a row the number behind the last row, so that a sort puts them at the end.
struct PutRowlessLast {
  RowIndex* rows;
  RowIndex last;
  SLOTWISE_HD void operator()(std::uint32_t i) const {
    if (rows[i] == kNoRow) rows[i] = last;
  }
};

// Writes every occurrence's place in the batch.
struct CountUp {
  std::uint32_t* places;
  SLOTWISE_HD void operator()(std::uint32_t i) const { places[i] = i; }
};

// Returns whether an occurrence is the first of its row.
struct BeginsSegment {
  const std::uint32_t* rows;  // sorted
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return i == 0 || rows[i] != rows[i - 1]; }
};

// The occurrences of a batch, grouped by row.
struct Segments {
  const std::uint32_t* rows;   // [occurrences] sorted
  const std::uint32_t* items;  // [occurrences] the sort's values: each one's bag, or its place in the batch
  const std::uint32_t* begin;  // [segments] each one's first occurrence
  std::uint32_t segments;
  std::uint32_t occurrences;

  SLOTWISE_HD std::uint32_t Length(std::uint32_t segment) const {
    return (segment + 1 < segments ? begin[segment + 1] : occurrences) - begin[segment];
  }
  SLOTWISE_HD RowIndex Row(std::uint32_t segment) const { return RowIndex{rows[begin[segment]]}; }

  // Returns the same, with `size` as the number of segments.
  SLOTWISE_HD Segments Of(std::uint32_t size) const { return {rows, items, begin, size, occurrences}; }
};

// A source returns the i-th item that is to be summed. An item is a row of floats, or a type with a LoadItem
// of its own.
template <class Chunk>
SLOTWISE_HD typename Chunk::Vector LoadItem(Chunk chunk, const float* item, std::uint32_t vector) {
  return chunk.Load(item, vector);
}

// The source of occurrences whose gradient is that of their bag: a row of float[bags][dim].
struct BagGradients {
  const float* gradients;
  const std::uint32_t* bags;  // [occurrences]
  std::uint32_t dim;
  SLOTWISE_HD const float* operator()(std::uint32_t i) const {
    return gradients + static_cast<std::size_t>(bags[i]) * dim;
  }
  void Prefetch(std::uint32_t i) const { PrefetchRow((*this)(i), dim); }
};

// The source of other occurrences, whose gradient is (the bag's gradient · weight) / divisor. Bags whose
// divisor is 0 have no occurrences (zero_divisor_bags.h).
struct ScaledGradients {
  const float* gradients;
  const std::uint32_t* occurrences;  // [occurrences] their places in the batch
  const std::uint32_t* bag_of;       // by place
  const float* weights;              // by place, or null: all 1
  const float* divisors;             // by bag, or null: all 1
  const std::uint32_t* places;       // by bag: its row of `gradients`, or null: the bag itself
  std::uint32_t dim;

  struct Item {
    const float* gradient;
    float weight;
    float divisor;

    template <class Chunk>
    friend SLOTWISE_HD typename Chunk::Vector LoadItem(Chunk chunk, Item item, std::uint32_t vector) {
      const auto weighted = chunk.Load(item.gradient, vector) * item.weight;
      return item.divisor == 1.0F ? weighted : weighted / item.divisor;
    }
  };

  SLOTWISE_HD Item operator()(std::uint32_t i) const {
    const std::uint32_t place = occurrences[i];
    const std::uint32_t bag = bag_of[place];
    const float weight = weights == nullptr ? 1.0F : weights[place];
    const float divisor = divisors == nullptr ? 1.0F : divisors[bag];
    const std::uint32_t row = places == nullptr ? bag : places[bag];
    return {gradients + static_cast<std::size_t>(row) * dim, weight, divisor};
  }
  void Prefetch(std::uint32_t i) const { PrefetchRow((*this)(i).gradient, dim); }
};

// Computes sum = source(0) + source(1) + ... + source(count - 1), from left to right. REQUIRES: count >= 1.
template <class Chunk, class Source>
SLOTWISE_HD void SumInOrder(Chunk chunk, std::uint32_t count, Source source, Vectors<Chunk>& sum) {
  const auto first = source(0);
  for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) sum[v] = LoadItem(chunk, first, v);
  for (std::uint32_t i = 1; i < count; ++i) {
    const auto item = source(i);
    for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) sum[v] += LoadItem(chunk, item, v);
  }
}

// Computes the same sum. After the first item, loads kItems items before it adds the first of them.
template <std::uint32_t kItems, class Chunk, class Source>
SLOTWISE_HD void SumInOrderByMany(Chunk chunk, std::uint32_t count, Source source, Vectors<Chunk>& sum) {
  SumInOrder(chunk, 1, source, sum);
  for (std::uint32_t i = 1; i < count; i += kItems) {
    typename Chunk::Vector loaded[kItems][Chunk::kVectors];
    SLOTWISE_UNROLL
    for (std::uint32_t k = 0; k < kItems; ++k) {
      if (i + k >= count) continue;
      const auto item = source(i + k);
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) loaded[k][v] = LoadItem(chunk, item, v);
    }
    SLOTWISE_UNROLL
    for (std::uint32_t k = 0; k < kItems; ++k) {
      if (i + k >= count) continue;
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) sum[v] += loaded[k][v];
    }
  }
}

// An optimizer, and the option that all optimizers have.
template <class Optimizer>
struct OptimizerRule {
  Optimizer optimizer;
  float weight_decay;
};

// Computes the row's gradient: the sum of `count` items, with weight decay. A lane that holds states of the
// row too loads item by item: with a second item in registers, a GPU's processor would have fewer warps.
template <class Optimizer, class Chunk, class Source, class Element>
SLOTWISE_HD void RowGradient(Chunk chunk, std::uint32_t count, Source source, const Element* record,
                             float weight_decay, Vectors<Chunk>& g) {
  constexpr std::uint32_t kItems = Optimizer::kStates == 0 ? Chunk::kItemsInFlight : 1;
  if constexpr (kItems == 1) {
    SumInOrder(chunk, count, source, g);
  } else {
    SumInOrderByMany<kItems>(chunk, count, source, g);
  }
  if (weight_decay == 0.0F) return;
  for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) g[v] = g[v] + weight_decay * chunk.LoadRow(record, v);
}

// Applies the optimizer to one row, by the sum of `count` <= kSumBlock items. An element that the step would
// make infinite or NaN stays as it was; so does a whole row if that would happen to its shared state.
template <class Tile, class Optimizer, class Source, class Element>
SLOTWISE_HD void ApplyOptimizerToRow(Tile tile, const OptimizerRule<Optimizer>& rule,
                                     const RowsOf<Element>& rows, RowIndex row, std::uint32_t count,
                                     Source source, const RowRounding<Element>& rounding) {
  Element* const record = rows.Record(row);
  ForEachChunk(tile, rows.dim, [=, state = rows.State(record), decay = rule.weight_decay](auto chunk) {
    const auto before = chunk.template LoadRecord<1 + Optimizer::kStates>(record, state);
    Vectors<decltype(chunk)> g;
    RowGradient<Optimizer>(chunk, count, source, record, decay, g);
    chunk.ApplyOptimizer(FiniteSteps<Optimizer>{rule.optimizer}, record, state, before, g, rounding);
  });
}

// Does the same for an optimizer that shares a state among the row's elements. A row of one chunk stays in
// registers while the lanes add up its squares; of a longer row the gradient is summed twice.
template <class Tile, class Optimizer, class Source, class Element>
  requires Optimizer::kSharesState
SLOTWISE_HD void ApplyOptimizerToRow(Tile tile, const OptimizerRule<Optimizer>& rule,
                                     const RowsOf<Element>& rows, RowIndex row, std::uint32_t count,
                                     Source source, const RowRounding<Element>& rounding) {
  Element* const record = rows.Record(row);
  float* const shared = rows.Shared(row);
  const float state = *shared;  // every lane has read it when AddSquares returns to one of them
  float squares = 0.0F;
  ForEachChunk(tile, rows.dim, [&](auto chunk) {
    if (chunk.IsWholeRow()) return;
    Vectors<decltype(chunk)> g;
    RowGradient<Optimizer>(chunk, count, source, record, rule.weight_decay, g);
    squares = chunk.AddSquares(g, squares);
  });
  ForEachChunk(tile, rows.dim, [=, dim = rows.dim, behind = rows.State(record)](auto chunk) {
    const auto before = chunk.template LoadRecord<1 + Optimizer::kStates>(record, behind);
    Vectors<decltype(chunk)> g;
    RowGradient<Optimizer>(chunk, count, source, record, rule.weight_decay, g);
    Optimizer optimizer = rule.optimizer;
    // Every lane computes the same.
    if (!optimizer.SeeRow(state, dim, chunk.IsWholeRow() ? chunk.AddSquares(g, squares) : squares)) return;
    if (chunk.first == 0) *shared = optimizer.shared_state();
    chunk.ApplyOptimizer(FiniteSteps<Optimizer>{optimizer}, record, behind, before, g, rounding);
  });
}

// Sums the short segments of a run, which one tile works on, and applies the optimizer to their rows. Each
// lane looks one segment up, so that the tile waits once for all of them.
template <class Optimizer, class Source, class Element>
struct ApplyOptimizerToShort {
  Segments segments;
  Source source;
  RowsOf<Element> rows;
  OptimizerRule<Optimizer> rule;
  StepRounding<Element> rounding;

  static constexpr std::uint32_t kRowsHeld = 1 + Optimizer::kStates;
  // Rounding takes registers, and with a few more a GPU's processor would have half as many rows under way.
  static constexpr std::uint32_t kLeastBlocks = std::is_same_v<Element, float> ? 0 : 2;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t first, std::uint32_t last) const {
    for (; first < last; first += Tile::kLanes) {
      const std::uint32_t mine = first + tile.lane();
      const bool has_one = mine < last;
      const std::uint32_t my_begin = has_one ? segments.begin[mine] : 0;
      const std::uint32_t my_length = has_one ? segments.Length(mine) : 0;
      const std::uint32_t my_row = has_one ? segments.rows[my_begin] : 0;
      const Key my_key = has_one ? rounding.KeyOf(RowIndex{my_row}) : Key{0};
      const std::uint32_t lanes = last - first < Tile::kLanes ? last - first : Tile::kLanes;
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        const std::uint32_t begin = tile.From(lane, my_begin);
        const std::uint32_t length = tile.From(lane, my_length);
        const RowIndex row{tile.From(lane, my_row)};
        const Key key = KeyFrom(tile, lane, my_key);
        if (length > kSumBlock) continue;
        ApplyOptimizerToRow(
            tile, rule, rows, row, length,
            [begin, items = source](std::uint32_t i) { return items(begin + i); }, rounding.OfRow(key));
      }
    }
  }

  // Prefetches only the beginning of a segment, as in pooling.
  static constexpr std::uint32_t kAhead = 12;
  void Prefetch(std::uint32_t segment) const {
    constexpr std::uint32_t kMost = 8;
    const std::uint32_t length = segments.Length(segment);
    if (length > kSumBlock) return;
    const RowIndex row = segments.Row(segment);
    PrefetchRow(rows.Record(row), rows.stride);
    if constexpr (Optimizer::kSharesState) PrefetchRow(rows.Shared(row), 1);
    rounding.Prefetch(row);
    const std::uint32_t begin = segments.begin[segment];
    for (std::uint32_t i = 0; i < (length < kMost ? length : kMost); ++i) source.Prefetch(begin + i);
  }

 private:
  // Returns that lane's key. Only rows of 16 bits need it.
  template <class Tile>
  SLOTWISE_HD static Key KeyFrom(Tile tile, std::uint32_t lane, Key mine) {
    if constexpr (std::is_same_v<Element, float>) {
      return mine;
    } else {
      const std::uint64_t high = tile.From(lane, static_cast<std::uint32_t>(Value(mine) >> 32));
      return Key{high << 32 | tile.From(lane, static_cast<std::uint32_t>(Value(mine)))};
    }
  }
};

// The source of block sums, one behind the other.
struct BlockSums {
  const float* sums;
  std::uint32_t dim;
  SLOTWISE_HD const float* operator()(std::uint32_t i) const {
    return sums + static_cast<std::size_t>(i) * dim;
  }
};

// Applies the optimizer to the row of a long segment, which one tile works on, once the segment's sum is one
// item.
template <class Optimizer, class Element>
struct ApplyOptimizerToLong {
  Segments segments;
  const std::uint32_t* long_segments;
  BlockSums source;
  RowsOf<Element> rows;
  OptimizerRule<Optimizer> rule;
  StepRounding<Element> rounding;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t s) const {
    const std::uint32_t segment = long_segments[s];
    ApplyOptimizerToRow(
        tile, rule, rows, segments.Row(segment), 1, [&](std::uint32_t) { return source(s); },
        rounding.OfRow(rounding.KeyOf(segments.Row(segment))));
  }
};

// Overwrites the row of a segment, which one tile works on, with the segment's last occurrence. Imports have
// one key a bag.
struct AssignRows {
  Segments segments;      // whose items are bags
  const float* values;    // [bags][columns]
  std::uint32_t columns;  // the whole record, or dim
  float state;            // of a new row, for the floats that `columns` leaves out
  std::uint64_t score;    // for rows whose score `columns` leaves out, or is kScoreOfNew
  RowsRef rows;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t segment) const {
    const std::uint32_t last = segments.begin[segment] + segments.Length(segment) - 1;
    const float* value = values + static_cast<std::size_t>(segments.items[last]) * columns;
    const FloatsOfRow floats = rows.Floats(segments.Row(segment));
    const std::uint32_t copied = columns < rows.WithoutScore() ? columns : rows.WithoutScore();
    for (std::uint32_t j = tile.lane(); j < copied; j += Tile::kLanes) floats.Write(j, value[j]);
    for (std::uint32_t j = columns + tile.lane(); j < rows.WithoutScore(); j += Tile::kLanes)
      floats.Write(j, state);
    if (rows.scored == nullptr || tile.lane() != 0) return;
    std::uint64_t given = kScoreOfNew;
    if (columns == rows.floats) memcpy(&given, value + rows.WithoutScore(), sizeof(given));
    rows.scored[Value(segments.Row(segment))].score = given == kScoreOfNew ? score : given;
  }
};

// Gives the row of a segment the score of a step that touches the row.
struct TouchRows {
  Segments segments;
  ScoredKey* scored;
  EvictionOrder order;  // at that step
  SLOTWISE_HD void operator()(std::uint32_t segment) const {
    std::uint64_t& score = scored[Value(segments.Row(segment))].score;
    score = order.Touched(score, segments.Length(segment));
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_UPDATE_H_
