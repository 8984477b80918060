// Names for optimizer steps, so that a push that is sent again is not applied again.
//
// A lone trainer needs `Session()` and nothing else, or no session at all: a Client has one of its own. Data-parallel
// trainers share one id (draw it once, send it to all) and each push as often, in the same order; the server then sums
// one push of every trainer into one optimizer step.
// Thread-safety: a Session may be used from any thread; a Step is a plain value.
#ifndef SLOTWISE_SESSION_H_
#define SLOTWISE_SESSION_H_

#include <atomic>
#include <cstdint>

#include "slotwise/status.h"

namespace slotwise {

// One optimizer step of one table, as one trainer sees it.
struct Step {
  std::uint64_t session = 0;  // the same for all trainers that share the step
  std::uint64_t number = 0;   // the session's own count, never reused for other data
  std::uint32_t trainer =
      0;  // whose share of the step this is: 0 .. trainers - 1; shares are summed in this order
  std::uint32_t trainers = 1;  // how many shares the step has
  // How many parts every trainer's share is cut into. 0: as many as the batch deserves, which only a lone trainer may
  // decide, because the others must know the step's number of parts.
  std::uint32_t parts = 0;

  friend bool operator==(const Step&, const Step&) = default;
};

// INVALID_ARGUMENT unless trainer < trainers, several trainers have said their parts, and all trainers' parts together
// are at most StepId::kMaxParts.
Status Validate(const Step& step);

class Session {
 public:
  struct Options {
    std::uint64_t id = 0;
    std::uint32_t trainer = 0;
    std::uint32_t trainers = 1;
    // Requests a push is cut into, the same for all trainers; 0: decided batch by batch for a lone trainer, 1 for
    // several. Raise it if one trainer's batch is past the server's largest request.
    std::uint32_t parts = 0;
  };

  // A lone trainer's: 64 random bits, from the system's own source.
  Session();
  // Pushes with steps of wrong options are INVALID_ARGUMENT.
  explicit Session(const Options& options);

  std::uint64_t id() const { return options_.id; }

  // The next step; the first has number 1.
  Step Next();

 private:
  const Options options_;
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace slotwise

#endif  // SLOTWISE_SESSION_H_
