// AcknowledgedSteps: what this client knows to be in each table, so that it notices when a server has lost
// it.
//
// Every reply names the state that it is of: the table's lineage and count of steps. A call remembers what
// was acknowledged when it began, tells the server, and compares: a later state of the same lineage has
// everything, unless the server says that a start of it began before what was acknowledged; another lineage,
// or a smaller count, has not. Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_ACKNOWLEDGED_STEPS_H_
#define SLOTWISE_CLIENT_CPP_ACKNOWLEDGED_STEPS_H_

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

// A table's state, as a reply names it. Lineage 0: the server does not say.
struct TableState {
  std::uint64_t lineage = 0;
  std::uint64_t step = 0;
  std::uint64_t incarnation = 0;  // of the server that said so; 0: nobody knows
  // The server says so of a state that a call met: this is the first lost step of those that the call named
  // as acknowledged. 0: none is lost, or the server is older than this.
  std::uint64_t lost_from = 0;
};

class AcknowledgedSteps {
 public:
  // Returns the newest state of the table in which a step of this client was acknowledged; step 0 if none
  // was.
  TableState Of(std::string_view table) const;

  // Compares the state that a call met with what had been acknowledged when the call began. DATA_LOSS, with
  // what was lost: not everything is there. From then on the table counts as met; calls that begin later hear
  // nothing of it.
  Status Check(std::string_view table, const TableState& before, const TableState& met);

  // Returns up to `most` tables with a state in which a step of this client was acknowledged.
  std::vector<std::pair<std::string, TableState>> All(std::size_t most) const;

  // A push was acknowledged, which made the table `state`.
  void Acknowledge(std::string_view table, const TableState& state);

  // The caller drops the table: nothing of it is expected any more.
  void Forget(std::string_view table);
  void ForgetAll();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, TableState, std::less<>> newest_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_ACKNOWLEDGED_STEPS_H_
