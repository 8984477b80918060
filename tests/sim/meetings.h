// Meetings: holds what simulated ranks bring to their collective calls, and checks that all make the same
// calls.
//
// A meeting is one collective call. Each rank comes once, with its bytes, and leaves once. Ranks come and
// leave in any order, and the next meeting may begin before the last rank has left.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_MEETINGS_H_
#define SLOTWISE_TESTS_SIM_MEETINGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/scheduler.h"

namespace slotwise::sim {

class Meetings {
 public:
  struct Meeting {
    std::string call;                             // the call and its sizes, the same on every rank
    std::vector<std::vector<std::byte>> bytes;    // [ranks] of each rank
    std::vector<std::vector<std::size_t>> sizes;  // [ranks] block sizes for each rank, if ranks differ
    std::vector<bool> came;
    std::size_t absent = 0;
  };

  Meetings(std::string name, Scheduler& scheduler, int ranks)
      : name_(std::move(name)), scheduler_(scheduler), next_(static_cast<std::size_t>(ranks)) {}

  // Begins the rank's next call, without bytes yet. Fails if another rank makes a different call there.
  std::shared_ptr<Meeting> Begin(int rank, const std::string& call) {
    const std::uint64_t number = next_[static_cast<std::size_t>(rank)]++;
    std::shared_ptr<Meeting>& meeting = meetings_[number];
    if (!meeting) {
      meeting = std::make_shared<Meeting>(Meeting{call, std::vector<std::vector<std::byte>>(next_.size()),
                                                  std::vector<std::vector<std::size_t>>(next_.size()),
                                                  std::vector<bool>(next_.size()), next_.size()});
      first_[number] = rank;
    } else if (meeting->call != call) {
      scheduler_.Fail(name_ + " call " + std::to_string(number) + ": rank " + std::to_string(rank) +
                      " calls " + call + ", but rank " + std::to_string(first_[number]) + " calls " +
                      meeting->call);
    }
    std::shared_ptr<Meeting> mine = meeting;
    if (++begun_[number] == next_.size()) {
      meetings_.erase(number);
      begun_.erase(number);
      first_.erase(number);
    }
    return mine;
  }

  // The rank arrives with its bytes.
  static void Come(Meeting& meeting, int rank, std::span<const std::byte> bytes) {
    const auto r = static_cast<std::size_t>(rank);
    meeting.bytes[r].assign(bytes.begin(), bytes.end());
    meeting.came[r] = true;
    --meeting.absent;
  }

 private:
  const std::string name_;
  Scheduler& scheduler_;
  std::vector<std::uint64_t> next_;  // [ranks] the number of each rank's next call
  std::map<std::uint64_t, std::shared_ptr<Meeting>> meetings_;
  std::map<std::uint64_t, std::size_t> begun_;
  std::map<std::uint64_t, int> first_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_MEETINGS_H_
