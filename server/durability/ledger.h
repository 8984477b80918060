// The Ledger remembers which steps of one table were applied, so that no step is applied twice.
//
// Every rank keeps the same ledger, because every rank sees the same rounds. Memory is bounded: the ledger
// keeps the last kWindow numbers of each session, and the kMaxSessions sessions that recorded a step last.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_LEDGER_H_
#define SLOTWISE_SERVER_DURABILITY_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

namespace slotwise {

class Ledger {
 public:
  // A number this far or further behind the newest applied number of its session can no longer be told from
  // an applied one.
  static constexpr std::uint64_t kWindow = 4096;
  static constexpr std::size_t kMaxSessions = 65536;

  // Returns the table's step count when this step was applied, or nothing if the step was not applied or is
  // too old to know.
  std::optional<std::uint64_t> Find(std::uint64_t session, std::uint64_t number) const;

  // Returns whether `number` is so far behind that it must be refused.
  bool IsTooOld(std::uint64_t session, std::uint64_t number) const;

  // Records an applied step. REQUIRES: Find finds nothing, and the step is not too old.
  void Record(std::uint64_t session, std::uint64_t number, std::uint64_t table_step);

 private:
  struct Session {
    std::map<std::uint64_t, std::uint64_t> applied;  // from number to table_step, the newest kWindow
    std::list<std::uint64_t>::iterator age;          // the session's place in ages_
  };

  std::unordered_map<std::uint64_t, Session> sessions_;
  std::list<std::uint64_t> ages_;  // sessions; the one that recorded a step last is at the back
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_LEDGER_H_
