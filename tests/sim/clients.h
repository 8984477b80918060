// Clients: what trainers and operators ask of the ranks, drawn from the seed an ask at a time.
//
// Trainers push steps in parts to any rank, send parts again (also after they were answered, and with other
// counts of parts), leave parts out, and share sessions; operators make and drop tables, move rows and look
// at them. All of a step's senders have the same data for it.
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

  // What a client sends next, in one message to one rank: mostly one ask. Nothing if there are none left.
  std::vector<Ask> Next();
  bool done() const { return asked_ >= plan_.asks; }

  // The tables that clients know, with the options of each.
  void Know(TableId table, const TableOptions& options) { tables_[table] = options; }
  const std::map<TableId, TableOptions>& tables() const { return tables_; }
  // A last look at every table: rows, sums and values.
  std::vector<Ask> LastLooks();

 private:
  struct Push {
    std::vector<Ask> parts;
    std::vector<std::uint32_t> to_come;  // parts that are still to be sent
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
  std::map<std::pair<TableId, std::uint64_t>, std::uint64_t> newest_;  // numbers by table and session
  std::vector<Push> pushes_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_CLIENTS_H_
