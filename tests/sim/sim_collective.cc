#include "tests/sim/sim_collective.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

namespace slotwise::sim {

std::shared_ptr<Meetings::Meeting> SimCollective::Meet(const std::string& call,
                                                       std::span<const std::byte> mine) {
  wires_.scheduler.Yield(rank_, "work");
  auto meeting = wires_.collectives.Begin(rank_, call);
  Meetings::Come(*meeting, rank_, mine);
  wires_.scheduler.Await(rank_, call, [&] { return meeting->absent == 0; });
  return meeting;
}

void SimCollective::AllGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto meeting = Meet("AllGather of " + std::to_string(mine.size()) + " bytes", mine);
  if (wires_.gathered) wires_.gathered(rank_, *meeting);
  std::byte* to = all.data();
  for (const auto& bytes : meeting->bytes) to = std::ranges::copy(bytes, to).out;
}

void SimCollective::AllReduceSum(std::span<std::uint64_t> values) {
  const auto meeting =
      Meet("AllReduceSum of " + std::to_string(values.size()) + " values", std::as_bytes(values));
  std::ranges::fill(values, 0U);
  for (const auto& bytes : meeting->bytes) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
      values[i] += value;
    }
  }
}

void SimCollective::Wake(std::uint64_t wait) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const Time late = wires_.scheduler.random().Below(wires_.slowest_wake);
    wires_.wakes[static_cast<std::size_t>(r)].push_back({wait, wires_.scheduler.now() + late});
  }
  wires_.scheduler.Yield(rank_, "Wake");
}

bool SimCollective::PollWake(std::uint64_t wait) {
  wires_.scheduler.Yield(rank_, "PollWake");
  bool woken = false;
  std::erase_if(wires_.wakes[static_cast<std::size_t>(rank_)], [&](const Wires::Wake& wake) {
    if (wake.arrives > wires_.scheduler.now()) return false;
    woken = woken || wake.wait == wait;
    return true;
  });
  return woken;
}

}  // namespace slotwise::sim
