// The files that a rank writes of a table into a checkpoint: their names, and their arrays.
//
//   rank-<r>.keys.npy           <u8 [rows]              in bucket order: by bucket, and ascending in a bucket
//   rank-<r>.starts.npy         <u8 [kBucketCount + 1]  where each bucket's rows begin, and the number of all
//   rank-<r>.rows.npy           <f4 [rows][dim]         or <f2, or <u2: upper halves of float32 (bfloat16)
//   rank-<r>.<state>.npy        <f4 [rows][width]       one for each of StatesOf(the optimizer)
//   rank-<r>.score.npy          <u8 [rows]              if the table keeps scores
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

// [b] is the rank that owns bucket b.
using BucketOwners = std::array<std::uint16_t, kBucketCount>;

// [b] is the number of keys in buckets before b. There are kBucketCount + 1 elements; the last counts all.
using BucketStarts = std::vector<std::uint64_t>;

inline constexpr std::uint64_t kNpyHeaderBytes = sizing::kNpyHeaderBytes;

struct ArrayFile {
  std::string name;       // "rank-0.keys.npy"
  std::string_view type;  // "<u8", "<f4", "<f2" or "<u2"
  std::uint64_t rows = 0;
  std::optional<std::uint32_t> width;  // none: the array has one dimension

  std::uint64_t row_bytes() const;
  // Returns the file's size, header included.
  std::uint64_t bytes() const { return kNpyHeaderBytes + rows * row_bytes(); }
  // Returns the first kNpyHeaderBytes bytes of the file.
  std::string header() const;
};

// A rank's files of one table.
struct TableArrays {
  ArrayFile keys;
  ArrayFile starts;
  ArrayFile values;
  std::vector<ArrayFile> states;
  std::optional<ArrayFile> scores;
  std::optional<ArrayFile> erased;
  std::optional<ArrayFile> erased_starts;

  // Returns all files in the order of the members.
  std::vector<ArrayFile> All() const;
};

// `erased` is a delta's number of erased keys, and none for a base.
// REQUIRES: rows <= kMaxRowsPerShard, erased <= TableOptions::kMaxMaxRows.
TableArrays ArraysOf(const TableOptions& options, DataType values, std::uint32_t rank, std::uint64_t rows,
                     std::optional<std::uint64_t> erased);

// Returns the type that a table's values are saved as, where `asked` is asked for. Those of 16-bit rows are
// exact in their own type, and counts are never rounded.
constexpr DataType SavedAs(DataType asked, const TableOptions& options) {
  const bool keeps = asked == DataType::kFloat32 || IsOfCandidates(options.name.view());
  return keeps ? options.row_dtype : asked;
}

// Returns a table's folder in a checkpoint's folder: "table-7".
std::string TableFolder(TableId table);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_TABLE_ARRAYS_H_
