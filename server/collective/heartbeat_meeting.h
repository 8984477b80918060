// HeartbeatMeeting is how a rank and its neighbours in the heartbeat's ring find each other.
// Thread-safety: one thread.
#ifndef SLOTWISE_SERVER_COLLECTIVE_HEARTBEAT_MEETING_H_
#define SLOTWISE_SERVER_COLLECTIVE_HEARTBEAT_MEETING_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>

#include "server/collective/heartbeat.h"
#include "server/collective/socket.h"
#include "slotwise/status.h"

namespace slotwise {

class HeartbeatMeeting {
 public:
  // `contacts` and `listening` outlive the meeting.
  HeartbeatMeeting(std::span<const Heartbeat::Contact> contacts, int me, const Socket& listening);

  // Returns when both neighbours are connected, or after `most` with an error that says why they are not.
  Status Run(std::chrono::milliseconds most);

  // This rank makes the connection with the next rank; the rank before makes the one with this rank. If there
  // are two ranks, the first makes their one connection.
  Socket next;
  Socket previous;

 private:
  using Clock = Heartbeat::Clock;

  // Both sides of a connection send a hello first.
  struct Hello {
    Heartbeat::Secret secret{};
    std::array<std::uint8_t, 4> from{};
    std::array<std::uint8_t, 4> to{};
    friend bool operator==(const Hello&, const Hello&) = default;
  };
  // A connection on which the other side has not said its hello yet.
  struct Caller {
    Socket socket;
    Clock::time_point until;
    std::array<std::uint8_t, sizeof(Hello)> heard{};
    std::size_t bytes = 0;
  };

  Hello HelloOf(int from, int to) const;
  int Neighbour(int step) const;
  bool IsComplete() const { return (next || !makes_) && (previous || !takes_); }
  void PollOnce();
  void CallNext();
  void AcceptCallers();
  // Reads on. Returns false to drop the caller; moves its socket to `becomes` once its hello is right.
  bool Hear(Caller& caller, const Hello& expected, Socket& becomes);
  Status WhyNot() const;

  const std::span<const Heartbeat::Contact> contacts_;
  const int me_;
  const bool makes_;
  const bool takes_;
  const Socket& listening_;
  std::list<Caller> callers_;
  std::list<Caller> calls_;  // the one that this rank is making, if there is one
  std::size_t address_ = 0;  // which of the next rank's addresses is tried
  bool greeted_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_HEARTBEAT_MEETING_H_
