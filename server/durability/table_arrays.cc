#include "server/durability/table_arrays.h"

#include <utility>

#include "slotwise/npy_header.h"

namespace slotwise {
namespace {

std::string_view NpyType(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "<f4";
    case DataType::kFloat16:
      return "<f2";
    case DataType::kBFloat16:
      return "<u2";  // NumPy has no type for it.
  }
  return {};
}

}  // namespace

std::uint64_t ArrayFile::row_bytes() const {
  const auto element_bytes = static_cast<std::uint64_t>(type.back() - '0');
  return element_bytes * width.value_or(1);
}

std::string ArrayFile::header() const { return NpyHeader(type, {.rows = rows, .width = width}); }

std::vector<ArrayFile> TableArrays::All() const {
  std::vector<ArrayFile> all = {keys, starts, values};
  all.insert(all.end(), states.begin(), states.end());
  if (scores) all.push_back(*scores);
  if (erased) all.push_back(*erased);
  if (erased_starts) all.push_back(*erased_starts);
  return all;
}

TableArrays ArraysOf(const TableOptions& options, DataType values, std::uint32_t rank, std::uint64_t rows,
                     std::optional<std::uint64_t> erased) {
  const auto file = [&](std::string_view what, std::string_view type, std::uint64_t count,
                        std::optional<std::uint32_t> width = std::nullopt) {
    return ArrayFile{.name = "rank-" + std::to_string(rank) + "." + std::string(what) + ".npy",
                     .type = type,
                     .rows = count,
                     .width = width};
  };
  TableArrays arrays{.keys = file("keys", "<u8", rows),
                     .starts = file("starts", "<u8", kBucketCount + 1),
                     .values = file("rows", NpyType(values), rows, options.dim),
                     .states = {},
                     .scores = {},
                     .erased = {},
                     .erased_starts = {}};
  for (const StateArray& state : StatesOf(options.optimizer.kind))
    arrays.states.push_back(file(state.name, "<f4", rows, state.one_a_row ? 1 : options.dim));
  if (options.has_scores()) arrays.scores = file("score", "<u8", rows);
  if (erased) {
    arrays.erased = file("erased", "<u8", *erased);
    arrays.erased_starts = file("erased-starts", "<u8", kBucketCount + 1);
  }
  return arrays;
}

std::string TableFolder(TableId table) { return "table-" + std::to_string(Value(table)); }

}  // namespace slotwise
