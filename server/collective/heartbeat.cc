#include "server/collective/heartbeat.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "server/collective/heartbeat_meeting.h"

namespace slotwise {
namespace {

// A rank sends its neighbours these bytes: that it is there, and that it ends as it should.
constexpr char kHere = '.';
constexpr char kFarewell = '!';

// Ranks find each other within this time. They come here together, as soon as MPI connects them.
constexpr std::chrono::seconds kMeetingLimit{30};

// Returns the time between two beats: many in a limit, so that some may be late.
std::chrono::milliseconds PauseOf(Heartbeat::Clock::duration limit) {
  const auto twentieth = std::chrono::duration_cast<std::chrono::milliseconds>(limit / 20);
  return std::clamp(twentieth, std::chrono::milliseconds(10), std::chrono::milliseconds(500));
}

Status NoSocket(const char* what) {
  return Unavailable(std::string("the ranks' heartbeat has no ") + what + ": " + std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<Heartbeat>> Heartbeat::Listen(bool one_host) {
  std::unique_ptr<Heartbeat> heartbeat(new Heartbeat);
  Contact& contact = heartbeat->contact_;
  if (getrandom(contact.secret.data(), contact.secret.size(), 0) != ssize_t{sizeof(contact.secret)}) {
    return NoSocket("random numbers");
  }
  heartbeat->stop_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!heartbeat->stop_) return NoSocket("event");
  std::uint16_t port = 0;
  heartbeat->listening_ = ListenAtAnyPort(one_host, port);
  if (!heartbeat->listening_) return NoSocket("socket");
  contact.port = {static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port & 255)};
  if (one_host) {
    contact.addresses[0] = kLoopback;
  } else {
    std::ranges::copy(AddressesOfThisHost(Contact::kMostAddresses), contact.addresses.begin());
  }
  gethostname(contact.host.data(), contact.host.size() - 1);
  return heartbeat;
}

Heartbeat::~Heartbeat() {
  if (thread_.joinable()) {
    eventfd_write(stop_.fd(), 1);
    thread_.join();
  }
  for (const Neighbour& neighbour : neighbours_) {
    send(neighbour.socket.fd(), &kFarewell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

Status Heartbeat::Meet(std::span<const Contact> contacts, Rank me, std::chrono::milliseconds most) {
  HeartbeatMeeting meeting(contacts, Value(me), listening_);
  if (Status met = meeting.Run(most); !met.ok()) return met;
  listening_ = {};
  const auto add = [&](Socket socket, std::size_t rank) {
    if (!socket) return;
    Neighbour& neighbour = neighbours_.emplace_back();
    neighbour.name = "rank " + std::to_string(rank) + " on " + contacts[rank].host.data();
    neighbour.socket = std::move(socket);
  };
  const auto mine = static_cast<std::size_t>(Value(me));
  add(std::move(meeting.next), (mine + 1) % contacts.size());
  add(std::move(meeting.previous), (mine + contacts.size() - 1) % contacts.size());
  return {};
}

void Heartbeat::Start(std::chrono::milliseconds limit, std::function<void(const std::string&)> lost) {
  limit_ = limit - limit / 5;
  lost_ = std::move(lost);
  thread_ = std::thread([this] { Run(); });
}

void Heartbeat::Run() {
  const auto pause = PauseOf(limit_);
  Clock::time_point last = Clock::now();
  Beat();
  for (;;) {
    std::array<pollfd, 3> sockets{{{stop_.fd(), POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}}};
    for (std::size_t i = 0; i < neighbours_.size(); ++i) {
      if (!neighbours_[i].left) sockets[i + 1].fd = neighbours_[i].socket.fd();
    }
    const auto next = std::chrono::ceil<std::chrono::milliseconds>(last + pause - Clock::now());
    poll(sockets.data(), sockets.size(), std::max(0, static_cast<int>(next.count())));
    if (sockets[0].revents != 0) return;

    // A pause of this process, or of all ranks together, is not a neighbour's silence.
    const Clock::duration passed = Clock::now() - last;
    const bool beats = passed >= pause;
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.left) continue;
      if (beats) neighbour.silence += std::min<Clock::duration>(passed, 2 * pause);
      std::string why = Hear(neighbour);
      if (why.empty() && neighbour.silence >= limit_) {
        std::array<char, 32> seconds{};
        std::snprintf(seconds.data(), seconds.size(), "%.1f s",
                      std::chrono::duration<double>(neighbour.silence).count());
        why = "nothing was heard of " + neighbour.name + " for " + seconds.data();
      }
      if (!why.empty()) return lost_(why);
    }
    if (!beats) continue;
    last = Clock::now();
    Beat();
  }
}

void Heartbeat::Beat() {
  for (const Neighbour& neighbour : neighbours_) {
    // An error shows when the neighbour is heard; one that does not read hears enough.
    send(neighbour.socket.fd(), &kHere, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

std::string Heartbeat::Hear(Neighbour& neighbour) {
  std::array<char, 256> bytes;
  for (;;) {
    const ssize_t got = recv(neighbour.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      neighbour.silence = Clock::duration(0);
      neighbour.left = bytes[static_cast<std::size_t>(got) - 1] == kFarewell;
      if (neighbour.left) return {};
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return {};
    } else {
      return neighbour.name + " is gone" + (got == 0 ? "" : std::string(": ") + std::strerror(errno));
    }
  }
}

Result<std::unique_ptr<Heartbeat>> StartHeartbeat(Collective& collective, std::chrono::milliseconds limit,
                                                  std::function<void(const std::string&)> lost) {
  if (collective.size() == 1) return std::unique_ptr<Heartbeat>();
  auto heartbeat = Heartbeat::Listen(collective.local_size() == collective.size());
  const auto contacts =
      AllGatherValues(collective, heartbeat.ok() ? (*heartbeat)->contact() : Heartbeat::Contact{});
  const Status met =
      heartbeat.ok() ? (*heartbeat)->Meet(contacts, collective.rank(), kMeetingLimit) : heartbeat.status();
  // No rank beats before all are there to hear it; a rank that cannot beat comes here too, because whatever
  // the ranks call next they call together.
  AllGatherValues(collective, std::uint8_t{0});
  if (!met.ok()) return met;
  (*heartbeat)->Start(limit, std::move(lost));
  return heartbeat;
}

}  // namespace slotwise
