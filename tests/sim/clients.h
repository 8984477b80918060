// Clients: draws the requests of trainers and operators from the seed, an ask at a time.
//
// Trainers push steps in parts to any rank, send parts again (also after they were answered, and with other
// counts of parts), leave parts out, and share sessions. Operators make and drop tables, and move and read
// rows. All senders of a step have the same data for it.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_CLIENTS_H_
#define SLOTWISE_TESTS_SIM_CLIENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/sim/asks.h"
#include "tests/sim/plan.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

class Clients {
 public:
  explicit Clients(const Plan& plan) : plan_(plan), random_(plan.seed * 31 + 7) {}

  // Returns the next message of a client to one rank, mostly one ask; nothing if no asks are left.
  std::vector<Ask> Next();
  bool done() const { return asked_ >= plan_.asks; }

  // Adds a table that clients know, with its options.
  void Know(TableId table, const TableOptions& options) { tables_[table] = options; }
  const std::map<TableId, TableOptions>& tables() const { return tables_; }
  // Returns a last read of every table: rows, sums and values.
  std::vector<Ask> LastLooks();

 private:
  struct Push {
    std::vector<Ask> parts;
    std::vector<std::uint32_t> to_come;  // parts that were not sent yet
  };
  using Table = std::pair<const TableId, TableOptions>;

  std::vector<Ask> DrawMessage();
  Table& DrawTable();
  DataType DrawType();
  Ask DrawAsk();
  Ask DrawLookup();
  Ask DrawPart();
  Push DrawPush();
  std::vector<std::pair<TableId, TableOptions>> DrawTables();
  Ask DrawPartOf(const std::pair<TableId, TableOptions>& table, bool weighted);
  Ask DrawRows();
  Ask DrawOperator();
  std::vector<Ask> DrawGroup();

  const Plan& plan_;
  Random random_;
  std::uint64_t asked_ = 0;
  std::map<TableId, TableOptions> tables_;
  std::map<std::pair<TableId, std::uint64_t>, std::uint64_t> newest_;  // step numbers, by table and session
  std::vector<Push> pushes_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_CLIENTS_H_
