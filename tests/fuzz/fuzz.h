// Shared code of the fuzzers: a check that ends the program, the tables of their server, and messages in
// slices.
//
// A fuzzer is one function Run(bytes), which libFuzzer calls (entry.cc) with bytes that it derives from those
// in corpus/<name>. Run feeds a decoder, and checks that decoded data has all properties that the next room
// relies on. A refusal is always right. A crash, a sanitizer's report or a failed Require never is.
// Thread-safety: free functions.
#ifndef SLOTWISE_TESTS_FUZZ_FUZZ_H_
#define SLOTWISE_TESTS_FUZZ_FUZZ_H_

#include <grpcpp/support/byte_buffer.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "server/engine/operations/push.h"
#include "server/engine/schedule/request.h"
#include "server/engine/tables.h"
#include "slotwise/batch.h"
#include "slotwise/table_options.h"
#include "tests/rpc/messages.h"

namespace slotwise::fuzz {

// Tries an input.
void Run(std::string_view bytes);

// Ends the program, which libFuzzer counts as a crash, unless `holds`.
inline void Require(bool holds, const char* what,
                    std::source_location place = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: %s does not hold\n", place.file_name(), place.line(), what);
  std::abort();
}

// Returns `bytes` in slices of 1 to 40 bytes, as the bytes determine; gRPC may join the shortest ones.
inline grpc::ByteBuffer InSlices(std::string_view bytes) {
  const std::size_t sum = bytes.empty() ? 0
                                        : static_cast<unsigned char>(bytes.front()) +
                                              static_cast<unsigned char>(bytes.back()) + bytes.size();
  return BufferOf(bytes, 1 + sum % 40);
}

// Returns the tables: "ads" with two slots, "words" without a combiner, and "adam", whose rows have state.
inline const std::vector<TableInfo>& Tables() {
  static const std::vector<TableInfo> tables = [] {
    TableOptions words;
    words.name = TableName("words");
    words.dim = 1;
    words.combiner = Combiner::kNone;
    TableOptions adam;
    adam.name = TableName("adam");
    adam.dim = 2;
    adam.optimizer.kind = OptimizerKind::kAdam;
    return std::vector<TableInfo>{{TableId{7}, AdsTable()}, {TableId{8}, words}, {TableId{9}, adam}};
  }();
  return tables;
}

inline Result<TableInfo> FindTable(std::string_view name, Rights) {
  for (const TableInfo& table : Tables()) {
    if (table.options.name.view() == name) return table;
  }
  return NotFound("no such table");
}

// REQUIRES: the id is that of a table in Tables().
inline const TableOptions& OptionsOf(TableId id) {
  for (const TableInfo& table : Tables()) {
    if (table.id == id) return table.options;
  }
  Require(false, "that a request's table is one of the server's");
  std::abort();
}

template <class T>
bool SameBytes(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

inline bool Finite(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

// Checks the properties that the engine relies on, for a batch of a table with `slots` slots.
inline void RequireValid(const BatchPart& part, std::uint32_t slots) {
  const auto keys = part.keys.span();
  const auto offsets = part.offsets.span();
  Require(offsets.size() == std::uint64_t{part.samples} * slots + 1, "samples x slots + 1 offsets");
  Require(offsets.front() == 0 && offsets.back() == keys.size(),
          "that offsets go from 0 to the keys' number");
  for (std::size_t bag = 1; bag < offsets.size(); ++bag) {
    Require(offsets[bag - 1] <= offsets[bag], "that offsets rise");
  }
  Require(part.weights.size() == 0 || part.weights.size() == keys.size(), "a weight for each key, or none");
  Require(Finite(part.weights.span()), "that weights are finite");
}

inline void RequireSameBatch(const BatchPart& a, const BatchPart& b) {
  Require(a.samples == b.samples, "that the samples are the same");
  Require(SameBytes(a.keys.span(), b.keys.span()), "that the keys are the same");
  Require(SameBytes(a.offsets.span(), b.offsets.span()), "that the offsets are the same");
  Require(SameBytes(a.weights.span(), b.weights.span()), "that the weights are the same");
  Require(a.value_type == b.value_type, "that the values' type is the same");
}

}  // namespace slotwise::fuzz

#endif  // SLOTWISE_TESTS_FUZZ_FUZZ_H_
