// SimCollective: a rank's Collective among ranks of one process. The scheduler decides when calls end, and
// wakes arrive late, by a time drawn from the seed.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_SIM_COLLECTIVE_H_
#define SLOTWISE_TESTS_SIM_SIM_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "server/collective/collective.h"
#include "tests/sim/meetings.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

// The state that a simulation's ranks share.
struct Wires {
  Wires(Scheduler& scheduler_of_all, int ranks)
      : scheduler(scheduler_of_all),
        size(ranks),
        collectives("collective", scheduler, ranks),
        batches("exchange of batches", scheduler, ranks),
        bags("exchange of bags", scheduler, ranks),
        wakes(static_cast<std::size_t>(ranks)) {}

  struct Wake {
    std::uint64_t wait = 0;
    Time arrives = 0;
  };

  Scheduler& scheduler;
  const int size;  // number of ranks
  Meetings collectives;
  Meetings batches;
  Meetings bags;
  std::vector<std::vector<Wake>> wakes;  // [ranks] wakes on their way to the rank
  Time slowest_wake = 2000;
  // Called when a rank leaves an AllGather, with the bytes of all ranks.
  std::function<void(int rank, const Meetings::Meeting&)> gathered;
};

class SimCollective final : public Collective {
 public:
  SimCollective(Wires& wires, int rank) : wires_(wires), rank_(rank) {}

  Rank rank() const override { return Rank{rank_}; }
  int size() const override { return wires_.size; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return size(); }

  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void AllReduceSum(std::span<std::uint64_t> values) override;
  void Wake(std::uint64_t wait) override;
  bool PollWake(std::uint64_t wait) override;

 private:
  std::shared_ptr<Meetings::Meeting> Meet(const std::string& call, std::span<const std::byte> mine);

  Wires& wires_;
  const int rank_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SIM_COLLECTIVE_H_
