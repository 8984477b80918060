// In a HostMeeting, the ranks of one host meet in memory that they share. Each brings some bytes; when all
// have come, each reads the bytes that the others brought.
//
// A rank writes its bytes to its own place and comes. The last rank to come opens the meeting to all. A rank
// that waits first spins, if every rank has a processor; then yields its processor to others, because a
// processor that has gone idle takes longer to come back than most meetings take; and then sleeps on a futex.
// There are two places a rank, which take turns: a rank that writes to one again has seen all ranks come to
// the meeting between, so no rank reads from the place any more. So a meeting costs each rank one wait.
//
// Idle ranks do not wait for a meeting, but for their bells, and a rank that has work wakes them.
//
// Thread-safety: one thread at a time (the engine's), but for the bell, which any thread may ring.
// Errors: none. A rank that does not come keeps the others waiting; the watchdog and the heartbeat notice it.
#ifndef SLOTWISE_SERVER_COLLECTIVE_HOST_MEETING_H_
#define SLOTWISE_SERVER_COLLECTIVE_HOST_MEETING_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "server/collective/bell.h"

namespace slotwise {

class HostMeeting {
 public:
  // A rank brings at most these bytes to a meeting.
  static constexpr std::size_t kMostBytes = std::size_t{128} << 10;

  struct Options {
    int rank = 0;
    int ranks = 1;
    // A rank that waits spins for so long. Only hosts where every rank has a processor should spin: elsewhere
    // the waiting rank keeps other ranks off the processor.
    std::chrono::microseconds spin{0};
    // A rank that waits calls this every kMeanwhile, for work that has to go on meanwhile.
    std::function<void()> meanwhile = {};
  };
  static constexpr std::chrono::milliseconds kMeanwhile{10};
  // After the spin a rank yields for so long before it sleeps: in small rounds the others come sooner.
  static constexpr std::chrono::microseconds kYield{100};

  // Returns the size of the memory for so many ranks.
  static std::size_t BytesFor(int ranks);

  // `memory` has BytesFor(ranks) bytes, at a multiple of 64, zeros before the first rank came. All ranks have
  // it mapped, and it outlives the meeting.
  HostMeeting(std::byte* memory, Options options);
  HostMeeting(const HostMeeting&) = delete;
  HostMeeting& operator=(const HostMeeting&) = delete;

  // Returns the kMostBytes that this rank brings to the next meeting.
  std::byte* Mine();
  // Collective. Comes with the bytes in Mine, and returns when all ranks have come.
  void Meet();
  // Returns the bytes that `rank` brought to the last meeting, to be read until this rank comes to the next.
  const std::byte* Of(std::size_t rank) const;

  // These implement the Collective's calls, for at most kMostBytes a rank.
  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all);
  void AllGatherBegins(std::span<const std::byte> mine, std::size_t used, std::span<std::byte> all);
  void AllReduceSum(std::span<std::uint64_t> values);
  void Wake(std::uint64_t wait);
  bool PollWake(std::uint64_t wait);

  // This rank's bell, which the other ranks' Wake rings.
  Bell& bell() { return bell_; }
  std::size_t ranks() const { return ranks_; }

 private:
  struct Hall;
  struct Seat;
  Hall& hall() const;
  Seat& SeatOf(std::size_t rank) const;
  std::byte* PlaceOf(std::size_t rank, std::uint64_t meeting) const;
  bool IsOpen() const;
  // Returns whether the meeting was opened while this rank spun.
  bool Spin() const;

  std::byte* const memory_;
  const std::size_t me_;
  const std::size_t ranks_;
  const std::chrono::microseconds spin_;
  const std::function<void()> meanwhile_;
  Bell bell_;
  std::uint64_t meetings_ = 0;  // meetings to which this rank has come
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_HOST_MEETING_H_
