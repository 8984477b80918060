// A Session names optimizer steps, so that a push that is sent twice is applied once.
//
// A lone trainer needs `Session()` and nothing else, or no session at all, because a Client has its own
// session. Data-parallel trainers share one id (draw the id once and send it to all trainers), and all
// trainers push equally often, in the same order. The server then sums one push of every trainer into one
// optimizer step.
// Thread-safety: a Session may be used from any thread; a Step is a plain value.
#ifndef SLOTWISE_SESSION_H_
#define SLOTWISE_SESSION_H_

#include <cstdint>
#include <mutex>

#include "slotwise/status.h"

namespace slotwise {

// One optimizer step of one table, as one trainer sees it.
struct Step {
  std::uint64_t session = 0;  // the same for all trainers that share the step
  std::uint64_t number = 0;   // the session's own count, never reused for other data
  std::uint32_t trainer =
      0;  // the trainer whose share this is: 0 .. trainers - 1; shares are summed in this order
  std::uint32_t trainers = 1;  // the number of shares of the step
  // Every trainer's share of a table is cut into `parts` parts. 0 means as many as the batch needs, which
  // only a lone trainer may choose, because several trainers must agree on the step's number of parts.
  std::uint32_t parts = 0;
  // The server's epoch when the session was drawn (ServerTopology::epoch); 0 if unknown. A server that has
  // forgotten sessions refuses unknown sessions whose epoch does not show that they are new.
  std::uint64_t epoch = 0;

  friend bool operator==(const Step&, const Step&) = default;
};

// Returns INVALID_ARGUMENT unless trainer < trainers, `parts` is above 0 if there are several trainers, and
// all trainers' parts together are at most StepId::kMaxParts.
Status Validate(const Step& step);

class Session {
 public:
  struct Options {
    std::uint64_t id = 0;
    std::uint32_t trainer = 0;
    std::uint32_t trainers = 1;
    // A push's batch, or each table's, is cut into `parts` parts, the same for all trainers. 0 means that a
    // lone trainer's batches each get as many as they need, and those of several trainers 1. Raise `parts` if
    // one trainer's batch of a table exceeds the server's largest request.
    std::uint32_t parts = 0;
    // ServerTopology::epoch when the id was drawn, the same for all trainers that share the session. If it is
    // 0, a server that has forgotten sessions refuses the session's first step.
    std::uint64_t epoch = 0;
    // The number of the last step that was drawn before: a trainer that goes on with a session after a
    // restart sets SessionDescription::last_step.
    std::uint64_t last = 0;
  };

  // Returns an id for a session: 64 random bits from the operating system.
  static std::uint64_t NewId();

  // Makes a lone trainer's session with a new id and no epoch.
  Session();
  // Does not check the options: a push with a step of wrong options ends with INVALID_ARGUMENT.
  explicit Session(const Options& options);

  std::uint64_t id() const;
  std::uint64_t epoch() const;

  // Returns the next step; the first step has number Options::last + 1.
  Step Next();

  // If the session's id is still `forgotten`, draws a new id, which has `epoch`, and numbers steps from 1
  // again: a server that has forgotten a session refuses its steps for good. A client renews its own session
  // (Client::Push).
  void Renew(std::uint64_t forgotten, std::uint64_t epoch);

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Options options_;
  std::uint64_t last_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SESSION_H_
