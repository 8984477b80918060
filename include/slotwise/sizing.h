// Computes how many bytes a table, a batch and a checkpoint take, for the server that takes them and for
// `slotwise-ctl plan`, which says so beforehand. docs/operations.md has the formulas in words.
//
// Thread-safety: constants and pure functions.
#ifndef SLOTWISE_SIZING_H_
#define SLOTWISE_SIZING_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "slotwise/table_options.h"

namespace slotwise::sizing {

// Keys fall into kBuckets buckets by their hash, and a rank owns a run of buckets.
inline constexpr std::uint64_t kBuckets = 4096;

// A cell of a hash table has a key and a row.
inline constexpr std::uint64_t kCellBytes = 16;
inline constexpr std::uint64_t kLeastCells = 4;
// Every table has room for at least kFirstRows rows on each rank.
inline constexpr std::uint64_t kFirstRows = 1024;
// Memory for rows comes in multiples of this: a large page of a processor, a granule of a GPU.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{2} << 20;
// A sixteenth of a GPU's memory is kept from tables. On the CPU backend memory_plan.h says how much is.
inline constexpr std::uint64_t kKeptFromTables = 16;

// The length of the header of a checkpoint's files.
inline constexpr std::uint64_t kNpyHeaderBytes = 128;

// Grouping a step's gradients takes at most a row of floats for each kKeysAPartialSum of the step's keys.
inline constexpr std::uint64_t kKeysAPartialSum = 11;

constexpr std::uint64_t DivideUp(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }

// Says what a row's record takes in memory, in bytes: its values, and behind them the optimizer's vectors.
struct RecordBytes {
  std::uint32_t bytes = 0;
  std::uint32_t state_at = 0;      // where the vectors begin
  std::uint32_t state_floats = 0;  // of all vectors
};
// An optimizer's vectors behind values of 16 bits begin at a multiple of 16 bytes, so that a GPU loads four
// floats at once.
constexpr RecordBytes RecordOf(DataType type, OptimizerKind optimizer, std::uint32_t dim) {
  constexpr auto kStateAlign = 16U;
  RecordBytes record;
  record.state_at = dim * static_cast<std::uint32_t>(BytesOf(type));
  if (!KeepsOneFloatARow(optimizer)) record.state_floats = StateFloats(optimizer, dim);
  if (record.state_floats > 0 && type != DataType::kFloat32)
    record.state_at = (record.state_at + kStateAlign - 1) / kStateAlign * kStateAlign;
  record.bytes = record.state_at + record.state_floats * static_cast<std::uint32_t>(sizeof(float));
  return record;
}
constexpr RecordBytes RecordOf(const TableOptions& options) {
  return RecordOf(options.row_dtype, options.optimizer.kind, options.dim);
}

// Returns whether rows' keys lie beside the rows, for rounding by chance: of rows with scores they do anyway.
constexpr bool KeepsKeys(const TableOptions& options) {
  return options.row_dtype != DataType::kFloat32 && options.rounding == Rounding::kStochastic &&
         !options.has_scores();
}

// Returns how many cells `rows` keys need, so that searches stay short, and end; at least a cache line of
// cells. REQUIRES: rows <= kMaxRowsPerShard, and Validate(TableOptions) takes max_load.
constexpr std::uint64_t CellsFor(std::uint64_t rows, float max_load) {
  std::uint64_t cells = std::max(std::bit_ceil(rows), kLeastCells);
  // The comparison is of floats, so that a load written as 0.9 equals 9 of 10.
  while (static_cast<float>(static_cast<double>(rows) / static_cast<double>(cells)) > max_load) cells *= 2;
  return cells;
}

// Returns the bytes of a hash table, which has one more cell, for the key that marks free cells.
constexpr std::uint64_t BytesOfCells(std::uint64_t cells) { return (cells + 1) * kCellBytes; }

constexpr std::uint64_t RoundUpToPieces(std::uint64_t bytes) {
  return DivideUp(bytes, kPieceBytes) * kPieceBytes;
}

// Return to how many elements an array grows that has to hold n: to twice as many where pages become memory
// only when they are written, to a quarter more on a GPU.
constexpr std::uint64_t AheadOnCpu(std::uint64_t n) { return 2 * n; }
constexpr std::uint64_t AheadOnGpu(std::uint64_t n) { return n + n / 4; }

// Returns to how many elements an array of `size` elements, whose contents need not survive, grows that has
// to hold n: half as many again, so that batches that grow little by little seldom make it grow, but at most
// an eighth more than it needs.
constexpr std::uint64_t ScratchAhead(std::uint64_t n, std::uint64_t size) {
  return std::max(n, std::min(size + size / 2, n + n / 8));
}

static_assert(BloomCounter::kBuckets == kBuckets);

// Returns how many of `rows` rows, spread evenly over all buckets, lie on the rank that owns most buckets.
// REQUIRES: 1 <= ranks <= kBuckets, rows <= TableOptions::kMaxMaxRows.
constexpr std::uint64_t EvenShare(std::uint64_t rows, std::uint64_t ranks) {
  return DivideUp(rows * DivideUp(kBuckets, ranks), kBuckets);
}

// A key counts as at least these bytes: finding and grouping a round's keys takes about five times as many.
inline constexpr std::uint64_t kBytesOfKey = 32;

// Returns the bytes that a batch counts as on a rank: those that it gathers, which are keys, their weights,
// offsets, and one float for each element of each bag; or those that its keys count as if these are more.
constexpr std::uint64_t RoundBytes(std::uint64_t keys, std::uint64_t bags, std::uint64_t dim, bool weighted) {
  const std::uint64_t gathered = keys * (sizeof(std::uint64_t) + (weighted ? sizeof(float) : 0)) +
                                 (bags + 1) * sizeof(std::uint32_t) + bags * dim * sizeof(float);
  return std::max(gathered, keys * kBytesOfKey);
}

// Returns the bytes that a step counts as: the same, or the partial sums of its gradients if those are more.
constexpr std::uint64_t StepBytes(std::uint64_t keys, std::uint64_t bags, std::uint64_t dim, bool weighted) {
  const std::uint64_t sums = DivideUp(keys, kKeysAPartialSum) * dim * sizeof(float);
  return std::max(RoundBytes(keys, bags, dim, weighted), sums);
}

}  // namespace slotwise::sizing

#endif  // SLOTWISE_SIZING_H_
