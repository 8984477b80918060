// ModelNames: the ledger's knowledge, in plain code: which steps were applied, under which names, and which
// sessions were forgotten since.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SIM_MODEL_NAMES_H_
#define SLOTWISE_TESTS_SIM_MODEL_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "slotwise/batch.h"
#include "slotwise/types.h"

namespace slotwise::sim {

class ModelNames {
 public:
  struct Applied {
    struct Share {
      TableId table{0};
      std::uint64_t table_step = 0;
      std::map<std::uint32_t, std::uint32_t> bodies = {};  // hashes of all its parts
    };
    std::map<std::uint32_t, Share> shares = {};  // by place
  };
  enum class Verdict { kNew, kApplied, kOtherBody, kOtherTables, kTooOld, kForgotten, kAhead };

  ModelNames(std::size_t most_sessions, std::uint64_t first_epoch)
      : most_sessions_(most_sessions), epoch_(first_epoch) {}

  // Judges a part of a step. Sets `applied` to the table's step if the step was applied.
  Verdict Judge(TableId table, const StepId& part, std::uint32_t body, std::uint64_t* applied) const;

  // REQUIRES: the step is new.
  void Record(const StepId& step, const Applied& applied);
  void Forget(TableId table);

 private:
  struct Session {
    TableId table{0};  // 0: the session's steps are of several tables
    std::uint64_t id = 0;
    std::uint64_t epoch = 0;
    std::map<std::uint64_t, Applied> steps = {};
  };
  const Session* Find(TableId table, std::uint64_t id) const;

  const std::size_t most_sessions_;
  std::uint64_t epoch_;
  std::optional<std::uint64_t> forgotten_epoch_;
  std::vector<Session> sessions_;  // ordered by their last recorded step
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_MODEL_NAMES_H_
