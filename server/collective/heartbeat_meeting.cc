#include "server/collective/heartbeat_meeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace slotwise {
namespace {

// The longest that an address is tried, and that a caller may take for its hello.
constexpr std::chrono::seconds kPatience{1};
// A refused call is made again after this time.
constexpr int kPauseMs = 20;

std::array<std::uint8_t, 4> Bytes(int rank) {
  std::array<std::uint8_t, 4> bytes{};
  const auto number = static_cast<std::uint32_t>(rank);
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

}  // namespace

HeartbeatMeeting::HeartbeatMeeting(std::span<const Heartbeat::Contact> contacts, int me,
                                   const Socket& listening)
    : contacts_(contacts),
      me_(me),
      makes_(contacts.size() > 2 || me == 0),
      takes_(contacts.size() > 2 || me == 1),
      listening_(listening) {}

Status HeartbeatMeeting::Run(std::chrono::milliseconds most) {
  const Clock::time_point until = Clock::now() + most;
  while (!IsComplete()) {
    if (Clock::now() >= until) return WhyNot();
    PollOnce();
  }
  return {};
}

HeartbeatMeeting::Hello HeartbeatMeeting::HelloOf(int from, int to) const {
  return {contacts_[0].secret, Bytes(from), Bytes(to)};
}

int HeartbeatMeeting::Neighbour(int step) const {
  const int size = static_cast<int>(contacts_.size());
  return (me_ + step + size) % size;
}

void HeartbeatMeeting::PollOnce() {
  CallNext();
  std::vector<pollfd> sockets;
  for (const Caller& call : calls_) {
    sockets.push_back({call.socket.fd(), static_cast<short>(greeted_ ? POLLIN : POLLOUT), 0});
  }
  for (const Caller& caller : callers_) sockets.push_back({caller.socket.fd(), POLLIN, 0});
  if (takes_ && !previous) sockets.push_back({listening_.fd(), POLLIN, 0});
  poll(sockets.data(), sockets.size(), kPauseMs);

  std::size_t s = 0;
  for (auto call = calls_.begin(); call != calls_.end();) {
    bool keep = Clock::now() < call->until;
    if (keep && sockets[s].revents != 0 && !greeted_) {
      const Hello hello = HelloOf(me_, Neighbour(+1));
      keep = send(call->socket.fd(), &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello);
      greeted_ = keep;
    } else if (keep && sockets[s].revents != 0) {
      keep = Hear(*call, HelloOf(Neighbour(+1), me_), next);
    }
    ++s;
    if (!keep) ++address_;
    call = keep ? std::next(call) : calls_.erase(call);
  }
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    bool keep = Clock::now() < caller->until;
    if (keep && sockets[s].revents != 0) keep = Hear(*caller, HelloOf(Neighbour(-1), me_), previous);
    if (previous && !caller->socket) {  // the neighbour hears that it has reached the right one
      const Hello hello = HelloOf(me_, Neighbour(-1));
      if (send(previous.fd(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) previous = {};
    }
    ++s;
    caller = keep ? std::next(caller) : callers_.erase(caller);
  }
  if (s < sockets.size() && sockets[s].revents != 0) AcceptCallers();
}

void HeartbeatMeeting::CallNext() {
  if (!makes_ || next || !calls_.empty()) return;
  const Heartbeat::Contact& contact = contacts_[static_cast<std::size_t>(Neighbour(+1))];
  if (contact.addresses[0].family == 0) return;  // that rank has no socket
  if (address_ >= contact.addresses.size() || contact.addresses[address_].family == 0) {
    address_ = 0;
    poll(nullptr, 0, kPauseMs);
  }
  greeted_ = false;
  const auto port = static_cast<std::uint16_t>(contact.port[0] << 8 | contact.port[1]);
  Socket socket = BeginToConnect(contact.addresses[address_], port);
  if (!socket) {
    ++address_;
    return;
  }
  SendWithoutDelay(socket);
  calls_.push_back({.socket = std::move(socket), .until = Clock::now() + kPatience});
}

void HeartbeatMeeting::AcceptCallers() {
  for (;;) {
    Socket socket(accept4(listening_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    if (callers_.size() >= Heartbeat::kMostCallers) continue;
    SendWithoutDelay(socket);
    callers_.push_back({.socket = std::move(socket), .until = Clock::now() + kPatience});
  }
}

bool HeartbeatMeeting::Hear(Caller& caller, const Hello& expected, Socket& becomes) {
  const ssize_t got =
      recv(caller.socket.fd(), caller.heard.data() + caller.bytes, sizeof(Hello) - caller.bytes, 0);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  caller.bytes += static_cast<std::size_t>(got);
  if (caller.bytes < sizeof(Hello)) return true;
  if (!becomes && std::memcmp(caller.heard.data(), &expected, sizeof(Hello)) == 0)
    becomes = std::move(caller.socket);
  return false;
}

Status HeartbeatMeeting::WhyNot() const {
  std::string why = "the ranks' heartbeat needs TCP between all hosts, at any port: ";
  if (takes_ && !previous) {
    const int who = Neighbour(-1);
    why += "rank " + std::to_string(who) + " on " + contacts_[static_cast<std::size_t>(who)].host.data() +
           " has not reached this host";
  }
  if (makes_ && !next) {
    const int who = Neighbour(+1);
    const Heartbeat::Contact& contact = contacts_[static_cast<std::size_t>(who)];
    if (takes_ && !previous) why += ", and ";
    why += "rank " + std::to_string(who) + " on " + contact.host.data() + " cannot be reached at port " +
           std::to_string(contact.port[0] << 8 | contact.port[1]) + " of";
    for (const IpAddress& address : contact.addresses) {
      if (address.family != 0) why += " " + address.Text();
    }
  }
  return Unavailable(why);
}

}  // namespace slotwise
