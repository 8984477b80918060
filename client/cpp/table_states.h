// TableStates keeps two states of each table. By the state in which this client's steps were acknowledged,
// the client notices when a server has lost steps. A push names the state that the latest lookup read; from
// it the server counts the steps between a trainer's lookup and its push.
//
// Every reply names the table's state: its generation and its count of steps. A call notes the acknowledged
// state when it begins, sends it to the server, and compares it with the reply's. A later state of the same
// generation has all acknowledged steps, unless the server says that some were lost (`lost_from`). Another
// generation, or a smaller count, lacks some.
// Thread-safety: safe from any thread.
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

// A table's state, as a reply names it. Generation 0: unknown.
struct TableState {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::uint64_t instance = 0;  // the server instance that sent the reply; 0: unknown
  // The first lost step among those that the call named as acknowledged, as the server says. 0: none is lost,
  // or the server is older than this field.
  std::uint64_t lost_from = 0;

  // Returns the newest step such that the server has it and all before it.
  std::uint64_t kept() const { return lost_from == 0 ? step : std::min(step, lost_from - 1); }
  // Returns whether this state, from a reply, has all steps that were acknowledged when the call began.
  bool Has(const TableState& acknowledged) const {
    if (acknowledged.step == 0 || generation == 0) return true;
    return generation == acknowledged.generation && kept() >= acknowledged.step;
  }
};

class TableStates {
 public:
  // Returns the table's newest state in which a step of this client was acknowledged; step 0: there is none.
  TableState Acknowledged(std::string_view table) const { return Of(table, acknowledged_); }
  // Returns up to `most` tables with such a state.
  std::vector<std::pair<std::string, TableState>> AllAcknowledged(std::size_t most) const;
  // Notes that a push was acknowledged with the table at `state`.
  void Acknowledge(std::string_view table, const TableState& state);

  // Compares the state in a reply with the state that was acknowledged when the call began. DATA_LOSS, with
  // the lost steps: the reply's state lacks some. Such a loss is reported once; later calls succeed.
  Status Check(std::string_view table, const TableState& before, const TableState& met) {
    return met.Has(before) ? Status() : NoteLoss(table, before, met);
  }

  // Returns the state that the latest noted lookup of the table read; generation 0: there is none.
  TableState LookedUp(std::string_view table) const { return Of(table, looked_up_); }
  // Notes the state that a finished lookup of the table has read. Ignores a state of generation 0.
  void NoteLookup(std::string_view table, const TableState& state);

  // These two forget states, because the caller drops the table or replaces all tables.
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

// The states in the replies to one lookup's requests, which may differ. The oldest one of each table counts.
class OldestStates {
 public:
  // `table` is a table's place in the lookup, the same for all of the table's requests.
  void Meet(std::size_t table, const TableState& state);
  // Returns the oldest state of a table; generation 0: no reply named one. A state of another generation
  // replaces the one before: the table was made again in between.
  TableState Of(std::size_t table) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TableState> oldest_;  // by the table's place
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_TABLE_STATES_H_
