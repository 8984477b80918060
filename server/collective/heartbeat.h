// The Heartbeat notices a rank that is dead, stopped or cut off from the others, whether or not there is
// work.
//
// The ranks form a ring over TCP, beside MPI, which the engine's thread alone may use. A thread of each rank
// tells both neighbours a few times a second that the rank is there. If a neighbour's connection ends without
// a farewell, or the neighbour is silent for the limit, this rank is told to end. Its own connections end
// then, so its neighbours end too, and theirs. A cut between hosts cuts the ring twice, so the ranks on both
// sides end. A rank whose engine is busy is not dead: its heartbeat's thread goes on.
//
// No other process can join the ring: one that connects to a rank has to know a secret that the ranks draw at
// the start and tell each other over MPI. A rank listens until its neighbour has connected, at most so long
// as Meet may take, and holds no more than kMostCallers callers that have not shown the secret.
// Thread-safety: Listen, Meet and Start on one thread, in this order. The destructor bids farewell.
#ifndef SLOTWISE_SERVER_COLLECTIVE_HEARTBEAT_H_
#define SLOTWISE_SERVER_COLLECTIVE_HEARTBEAT_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/collective/collective.h"
#include "server/collective/socket.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;
  using Secret = std::array<std::uint8_t, 16>;

  static constexpr std::size_t kMostCallers = 16;

  // The addresses and the name of a rank, made of bytes alone, because ranks gather it.
  struct Contact {
    static constexpr std::size_t kMostAddresses = 16;
    Secret secret{};  // rank 0's is the one that counts
    std::array<std::uint8_t, 2> port{};
    std::array<IpAddress, kMostAddresses> addresses{};  // those before the first of family 0
    std::array<char, 128> host{};                       // ends with a zero
  };

  // Listens, at the loopback address if all ranks are on this host, else at all of the host's addresses.
  // UNAVAILABLE if the system has no socket.
  static Result<std::unique_ptr<Heartbeat>> Listen(bool one_host);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  const Contact& contact() const { return contact_; }

  // Connects with the ring's neighbours. `contacts` are those of all ranks. UNAVAILABLE, in a sentence that
  // names the neighbour, its host and its addresses, if the ranks have not connected after `most`.
  Status Meet(std::span<const Contact> contacts, Rank me, std::chrono::milliseconds most);

  // Begins to beat. Calls `lost` once, from the heartbeat's thread, with a sentence that names the rank and
  // its host, as soon as a neighbour is gone, or was silent for eight tenths of `limit`: so all ranks can
  // have ended within `limit`. Time in which this process did not run does not count.
  void Start(std::chrono::milliseconds limit, std::function<void(const std::string&)> lost);

 private:
  struct Neighbour {
    std::string name;  // "rank 3 on host"
    Socket socket;
    Clock::duration silence{0};
    bool left = false;  // whether it bade farewell
  };

  Heartbeat() = default;
  void Run();
  void Beat();
  // Reads what the neighbour sent. Returns a sentence if its connection has ended.
  std::string Hear(Neighbour& neighbour);

  Contact contact_;
  Socket listening_;
  Socket stop_;  // an event that is readable once the thread shall end
  std::vector<Neighbour> neighbours_;
  Clock::duration limit_{0};
  std::function<void(const std::string&)> lost_;
  std::thread thread_;
};

// Collective. Returns a heartbeat that runs; null on a single rank. An error is one sentence for the
// operator, and may be one rank's alone.
Result<std::unique_ptr<Heartbeat>> StartHeartbeat(Collective& collective, std::chrono::milliseconds limit,
                                                  std::function<void(const std::string&)> lost);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_HEARTBEAT_H_
