// TableStates: what this client knows of each table. Of what is known to be in it, the client notices when a
// server has lost that; what its latest lookup has read the rows of, a push says, and the server counts from
// that how many steps a table got between a trainer's lookup and its push.
//
// Every reply names the state that it is of: the table's generation and count of steps. A call remembers what
// was acknowledged when it began, tells the server, and compares: a later state of the same generation has
// everything, unless the server says that a start of it began before what was acknowledged; another
// generation, or a smaller count, has not. Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_TABLE_STATES_H_
#define SLOTWISE_CLIENT_CPP_TABLE_STATES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slotwise/status.h"

namespace slotwise::client {

// A table's state, as a reply names it. Generation 0: the server does not say.
struct TableState {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::uint64_t instance = 0;  // of the server that said so; 0: nobody knows
  // The server says so of a state that a call met: this is the first lost step of those that the call named
  // as acknowledged. 0: none is lost, or the server is older than this.
  std::uint64_t lost_from = 0;

  // Returns the newest step of which the server has this one and all before it.
  std::uint64_t kept() const { return lost_from == 0 ? step : std::min(step, lost_from - 1); }
  // Returns whether this state, which a call met, has all that was acknowledged when the call began.
  bool Has(const TableState& acknowledged) const {
    if (acknowledged.step == 0 || generation == 0) return true;
    return generation == acknowledged.generation && kept() >= acknowledged.step;
  }
};

class TableStates {
 public:
  // Returns the newest state of the table in which a step of this client was acknowledged; step 0 if none
  // was.
  TableState Acknowledged(std::string_view table) const { return Of(table, acknowledged_); }
  // Returns up to `most` tables with such a state.
  std::vector<std::pair<std::string, TableState>> AllAcknowledged(std::size_t most) const;
  // A push was acknowledged, which made the table `state`.
  void Acknowledge(std::string_view table, const TableState& state);

  // Compares the state that a call met with what had been acknowledged when the call began. DATA_LOSS, with
  // what was lost: not everything is there. From then on the table counts as met; calls that begin later hear
  // nothing of it.
  Status Check(std::string_view table, const TableState& before, const TableState& met) {
    return met.Has(before) ? Status() : NoteLoss(table, before, met);
  }

  // Returns the state of the latest lookup of the table that was noted; generation 0 if none was.
  TableState LookedUp(std::string_view table) const { return Of(table, looked_up_); }
  // A lookup of the table has ended, and its rows are of that state. Generation 0, which names none, is
  // ignored.
  void NoteLookup(std::string_view table, const TableState& state);

  // The caller drops the table, or replaces all tables: nothing of them is expected any more.
  void Forget(std::string_view table);
  void ForgetAll();

 private:
  Status NoteLoss(std::string_view table, const TableState& before, const TableState& met);

  using States = std::map<std::string, TableState, std::less<>>;
  TableState Of(std::string_view table, const States& states) const;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  States acknowledged_;
  States looked_up_;
};

// The states that the requests of one lookup have met, which may differ: the oldest one of each table counts.
class OldestStates {
 public:
  // REQUIRES: `table`, a table's place in the lookup, is the same for all of the table's requests.
  void Meet(std::size_t table, const TableState& state);
  // Returns the oldest state of a table that was met; generation 0 if none was. A state of another generation
  // than the one met before takes its place: the table was made anew in between.
  TableState Of(std::size_t table) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TableState> oldest_;  // by the table's place
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_TABLE_STATES_H_
