// Starts: at which step of each table each start of a server on a data folder began.
//
// A server that loses steps which it had acknowledged goes on from an earlier step, under the same
// generation, and soon its table counts as many steps as before. Where each start began tells what is lost: a
// step that start I acknowledged is in the table if no later start began before that step.
//
// Starts that found the same steps are kept together, at most kMostStarts of them, and at most kMostStarts
// such groups. An acknowledgement by a start that is not known is compared with the newest start alone.
// The file `starts.json` of the data folder has them, as checked text (checked_fields.h). Rank 0 writes the
// file before its server serves. Thread-safety: plain values and free functions. Errors: FAILED_PRECONDITION,
// naming file and field.
#ifndef SLOTWISE_SERVER_DURABILITY_STARTS_H_
#define SLOTWISE_SERVER_DURABILITY_STARTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/durability/file_system.h"
#include "slotwise/status.h"

namespace slotwise {

inline constexpr std::string_view kStartsName = "starts.json";
inline constexpr std::size_t kMostStarts = 32;

// A table that a start found, and how many steps the table had.
struct FoundTable {
  std::uint64_t generation = 0;
  std::uint64_t steps = 0;
  friend bool operator==(const FoundTable&, const FoundTable&) = default;
};

// Starts, one after the other, that found the same.
struct ServerStarts {
  std::vector<std::uint64_t> instances;  // one at least; the newest is last
  std::vector<FoundTable> tables;        // by ascending generation
  friend bool operator==(const ServerStarts&, const ServerStarts&) = default;
};

class Starts {
 public:
  Starts() = default;

  // Adds a start that is newer than all others. Its tables may have any order. Above the bounds the oldest
  // go.
  void Add(std::uint64_t instance, std::vector<FoundTable> tables);

  // Returns the first step that is lost of those up to `step`, which the start `instance` acknowledged in
  // the table's `generation`; 0: all are there.
  std::uint64_t LostFrom(std::uint64_t generation, std::uint64_t instance, std::uint64_t step) const;

  std::span<const ServerStarts> all() const { return starts_; }  // oldest first

 private:
  std::vector<ServerStarts> starts_;
};

std::string SerializeStarts(const Starts& starts);
// `path` is for messages.
Result<Starts> ParseStarts(std::string_view text, const std::string& path);
// NOT_FOUND: there is no such file; and other errors of FileSystem.
Result<Starts> ReadStarts(FileSystem& files, const std::string& path);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_STARTS_H_
