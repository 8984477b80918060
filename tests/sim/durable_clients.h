// DurableClients: draws the requests to a server that dies and comes back from the seed.
//
// Trainers send steps in parts to any rank, and repeat those of earlier lives. Operators make, drop, fill and
// empty tables.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_DURABLE_CLIENTS_H_
#define SLOTWISE_TESTS_SIM_DURABLE_CLIENTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/durable_history.h"
#include "tests/sim/durable_plan.h"

namespace slotwise::sim {

class DurableClients {
 public:
  DurableClients(const DurablePlan& plan, DurableHistory& history)
      : plan_(plan), random_(plan.seed * 37 + 11), history_(history) {}

  // The numbers of an operation and of one of its parts.
  struct Message {
    std::size_t op = 0;
    std::size_t part = 0;
  };
  // Returns a client's next message to one rank.
  Message Next();

  // Sets the tables that clients know: those that the recovered server has, and later those in its answers.
  void Know(const std::vector<ObservedTable>& tables);
  void Hear(const Op& op, const Reply& reply);

 private:
  using Table = std::pair<TableId, TableOptions>;

  std::size_t Add(Op op);
  Message DrawPush();
  std::size_t MakePush();
  std::size_t MakeOther();
  Ask DrawPart(const Table& table);
  bool IsKnown(const Op& op) const;

  const DurablePlan& plan_;
  Random random_;
  DurableHistory& history_;
  std::map<std::string, Table> tables_;
  std::deque<Message> to_come_;  // parts of steps not sent yet
  std::vector<std::size_t> pushes_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DURABLE_CLIENTS_H_
