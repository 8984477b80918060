// Starts: at which step of each table each start of a server on a data folder began.
//
// A server that loses steps which it had acknowledged goes on from an earlier step, under the same lineage,
// and soon its table counts as many steps as before. Where each start began tells what is lost: a step that
// start I acknowledged is in the table if no later start began before that step.
//
// The newest kMostStarts starts are known, the running one among them. Of an acknowledgement by an older
// one, or by one that is not in the folder's file, all of them count as later: a loss is missed only if
// kMostStarts starts came since, and the last of them began behind the step.
// The file `starts.json` of the data folder has them, as checked_json.h writes them. Rank 0 writes the file
// before its server serves.
// Thread-safety: plain values and free functions.
// Errors: FAILED_PRECONDITION, naming file and field.
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
  std::uint64_t lineage = 0;
  std::uint64_t steps = 0;
  friend bool operator==(const FoundTable&, const FoundTable&) = default;
};

struct ServerStart {
  std::uint64_t incarnation = 0;
  std::vector<FoundTable> tables;  // by ascending lineage
  friend bool operator==(const ServerStart&, const ServerStart&) = default;
};

class Starts {
 public:
  Starts() = default;

  // Adds the newest start; its tables may have any order. A start before it with the same tables at the same
  // steps goes: whatever it acknowledged is lost. Above kMostStarts, the oldest goes.
  void Add(ServerStart start);

  // Returns the first step that is lost of those up to `step`, which the start `incarnation` acknowledged in
  // the table's `lineage`; 0: all are there.
  std::uint64_t LostFrom(std::uint64_t lineage, std::uint64_t incarnation, std::uint64_t step) const;

  std::span<const ServerStart> all() const { return starts_; }  // oldest first

 private:
  std::vector<ServerStart> starts_;
};

std::string SerializeStarts(const Starts& starts);
// `path` is for messages.
Result<Starts> ParseStarts(std::string_view text, const std::string& path);
// NOT_FOUND: there is no such file; and other errors of FileSystem.
Result<Starts> ReadStarts(FileSystem& files, const std::string& path);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_STARTS_H_
