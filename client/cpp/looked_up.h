// LookedUpStates: what this client's latest lookup of each table has read the rows of. A push says so, and
// the server counts from that how many steps a table got between a trainer's lookup and its push.
//
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_LOOKED_UP_H_
#define SLOTWISE_CLIENT_CPP_LOOKED_UP_H_

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/acknowledged_steps.h"

namespace slotwise::client {

class LookedUpStates {
 public:
  // Returns the state of the latest lookup of the table that was noted; lineage 0 if none was.
  TableState Of(std::string_view table) const;

  // A lookup of the table has ended, and its rows are of that state. Lineage 0, which names none, is ignored.
  void Note(std::string_view table, const TableState& state);

  // The caller drops the table, or replaces all tables.
  void Forget(std::string_view table);
  void ForgetAll();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, TableState, std::less<>> latest_;
};

// The states that the requests of one lookup have met, which may differ: the oldest one of each table counts.
class OldestStates {
 public:
  // REQUIRES: `table`, a table's place in the lookup, is the same for all of the table's requests.
  void Meet(std::size_t table, const TableState& state);
  // Returns the oldest state of a table that was met; lineage 0 if none was. A state of another lineage than
  // the one met before takes its place: the table was made anew in between.
  TableState Of(std::size_t table) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TableState> oldest_;  // by the table's place
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_LOOKED_UP_H_
