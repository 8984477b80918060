#include "server/collective/host_meeting.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "server/collective/futex.h"

namespace slotwise {
namespace {

constexpr std::size_t kLine = 64;

// Tells the processor that this thread spins.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// All ranks write these words. Words that are written at different times lie in lines of their own.
struct HostMeeting::Hall {
  alignas(kLine) std::uint64_t came;    // how often ranks came, over all meetings
  alignas(kLine) std::uint32_t opened;  // how many meetings were opened, modulo 2^32
  std::uint32_t asleep;                 // ranks that sleep until a meeting is opened, or are about to
};

// The words of one rank.
struct HostMeeting::Seat {
  alignas(kLine) Bell::Words bell;
  std::uint64_t woken;  // the last wait that another rank ended
};

namespace {

// A place has the bytes that a rank brings, and behind them their number, where ranks' numbers differ.
constexpr std::size_t kPlaceBytes = HostMeeting::kMostBytes + kLine;
constexpr std::size_t kUsedAt = HostMeeting::kMostBytes;

}  // namespace

std::size_t HostMeeting::BytesFor(int ranks) {
  return sizeof(Hall) + static_cast<std::size_t>(ranks) * (sizeof(Seat) + 2 * kPlaceBytes);
}

HostMeeting::HostMeeting(std::byte* memory, Options options)
    : memory_(memory),
      me_(static_cast<std::size_t>(options.rank)),
      ranks_(static_cast<std::size_t>(options.ranks)),
      spin_(options.spin),
      meanwhile_(std::move(options.meanwhile)),
      bell_(SeatOf(me_).bell) {}

HostMeeting::Hall& HostMeeting::hall() const { return *reinterpret_cast<Hall*>(memory_); }

HostMeeting::Seat& HostMeeting::SeatOf(std::size_t rank) const {
  return *reinterpret_cast<Seat*>(memory_ + sizeof(Hall) + rank * sizeof(Seat));
}

std::byte* HostMeeting::PlaceOf(std::size_t rank, std::uint64_t meeting) const {
  return memory_ + sizeof(Hall) + ranks_ * sizeof(Seat) + (2 * rank + meeting % 2) * kPlaceBytes;
}

std::byte* HostMeeting::Mine() { return PlaceOf(me_, meetings_ + 1); }
const std::byte* HostMeeting::Of(std::size_t rank) const { return PlaceOf(rank, meetings_); }

// No later meeting can be open, because this rank has not come to one.
bool HostMeeting::IsOpen() const {
  return std::atomic_ref(hall().opened).load() == static_cast<std::uint32_t>(meetings_);
}

bool HostMeeting::Spin() const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  do {
    const bool leaves_core = now - begin >= spin_;
    for (int i = 0; i < (leaves_core ? 1 : 20); ++i) {
      if (IsOpen()) return true;
      leaves_core ? static_cast<void>(sched_yield()) : Pause();
    }
    now = Clock::now();
  } while (now - begin < spin_ + kYield);
  return IsOpen();
}

void HostMeeting::Meet() {
  ++meetings_;
  Hall& all = hall();
  if (std::atomic_ref(all.came).fetch_add(1) + 1 == meetings_ * ranks_) {
    std::atomic_ref(all.opened).store(static_cast<std::uint32_t>(meetings_));
    // A rank that goes to sleep counts itself before it looks at `opened` again.
    if (std::atomic_ref(all.asleep).load() != 0) FutexWakeAll(all.opened);
    return;
  }
  if (Spin()) return;
  std::atomic_ref(all.asleep).fetch_add(1);
  while (!IsOpen()) {
    FutexWait(all.opened, static_cast<std::uint32_t>(meetings_ - 1), kMeanwhile);
    if (!IsOpen() && meanwhile_) meanwhile_();
  }
  std::atomic_ref(all.asleep).fetch_sub(1);
}

void HostMeeting::AllGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  AllGatherBegins(mine, mine.size(), all);
}

void HostMeeting::AllGatherBegins(std::span<const std::byte> mine, std::size_t used,
                                  std::span<std::byte> all) {
  std::byte* const place = Mine();
  std::copy_n(mine.data(), used, place);
  std::memcpy(place + kUsedAt, &used, sizeof(used));
  Meet();
  for (std::size_t r = 0; r < ranks_; ++r) {
    std::size_t theirs = 0;
    std::memcpy(&theirs, Of(r) + kUsedAt, sizeof(theirs));
    std::copy_n(Of(r), theirs, all.data() + r * mine.size());
  }
}

void HostMeeting::AllReduceSum(std::span<std::uint64_t> values) {
  std::ranges::copy(std::as_bytes(values), Mine());
  Meet();
  std::ranges::fill(values, 0U);
  for (std::size_t r = 0; r < ranks_; ++r) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, Of(r) + i * sizeof(value), sizeof(value));
      values[i] += value;
    }
  }
}

void HostMeeting::Wake(std::uint64_t wait) {
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == me_) continue;
    std::atomic_ref(SeatOf(r).woken).store(wait);
    Bell(SeatOf(r).bell).Ring();
  }
}

bool HostMeeting::PollWake(std::uint64_t wait) { return std::atomic_ref(SeatOf(me_).woken).load() == wait; }

}  // namespace slotwise
