// Which files a rank writes of a table into a checkpoint: their names, and the arrays in them.
//
//   rank-<r>.keys.npy           <u8 [rows]              in bucket order: by bucket, and ascending in a bucket
//   rank-<r>.starts.npy         <u8 [kBucketCount + 1]  where each bucket's rows begin, and the number of all
//   rank-<r>.rows.npy           <f4 [rows][dim]         or <f2, or <u2: upper halves of float32 (bfloat16)
//   rank-<r>.<state>.npy        <f4 [rows][width]       one for each of StatesOf(the optimizer)
//   rank-<r>.erased.npy         <u8 [erased]            deltas: keys that were erased, in bucket order
//   rank-<r>.erased-starts.npy  <u8 [kBucketCount + 1]
//
// Every file is NumPy's format 1.0 with a header of 128 bytes.
// Thread-safety: free functions and plain values.
#ifndef SLOTWISE_SERVER_DURABILITY_TABLE_ARRAYS_H_
#define SLOTWISE_SERVER_DURABILITY_TABLE_ARRAYS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slotwise/data_type.h"
#include "slotwise/sizing.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// A key's bucket is the upper 12 bits of its hash (docs/semantics.md).
inline constexpr std::uint32_t kBucketCount = sizing::kBuckets;

// [b]: the rank that owns bucket b.
using BucketOwners = std::array<std::uint16_t, kBucketCount>;

// [b]: how many keys lie in buckets before b; the last is the number of keys. It has kBucketCount + 1
// elements.
using BucketStarts = std::vector<std::uint64_t>;

inline constexpr std::uint64_t kNpyHeaderBytes = sizing::kNpyHeaderBytes;

struct ArrayFile {
  std::string name;       // "rank-0.keys.npy"
  std::string_view type;  // "<u8", "<f4", "<f2" or "<u2"
  std::uint64_t rows = 0;
  std::optional<std::uint32_t> width;  // none: an array of one dimension

  std::uint64_t row_bytes() const;
  // The file's size, with the header.
  std::uint64_t bytes() const { return kNpyHeaderBytes + rows * row_bytes(); }
  // The file's first kNpyHeaderBytes bytes.
  std::string header() const;
};

// A rank's files of a table.
struct TableArrays {
  ArrayFile keys;
  ArrayFile starts;
  ArrayFile values;
  std::vector<ArrayFile> states;
  std::optional<ArrayFile> erased;
  std::optional<ArrayFile> erased_starts;

  // All of them in this order.
  std::vector<ArrayFile> All() const;
};

// `erased`: of a delta, the number of erased keys; none for a base.
// REQUIRES: rows <= kMaxRowsPerShard, erased <= TableOptions::kMaxMaxRows.
TableArrays ArraysOf(const TableOptions& options, DataType values, std::uint32_t rank, std::uint64_t rows,
                     std::optional<std::uint64_t> erased);

// Returns the folder of a table in a checkpoint's: "table-7".
std::string TableFolder(TableId table);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_TABLE_ARRAYS_H_
