// Listener: the sockets that a rank listens at, and the thread that accepts connections there.
//
// gRPC can accept connections itself, but version 1.51 stops for good once an accept fails for want of file
// descriptors, and it takes as many connections as it is offered. Here a connection beyond the limit is
// closed at once, and the next is waited for: a rank is never deaf, and always has descriptors for its own
// work.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_RPC_LISTENER_H_
#define SLOTWISE_SERVER_RPC_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/intake/rare_log.h"
#include "slotwise/status.h"

namespace slotwise {

class Listener {
 public:
  // Takes over a connected socket, which does not block.
  using Take = std::function<void(int socket)>;

  // Binds to the addresses of `host` (an IPv6 address has brackets; 0.0.0.0 and [::] are all of the
  // machine's, of IPv4 and IPv6) at one port; port 0 is any free one. Connections are refused while about
  // `max_connections` are open, or fewer if the process may not open so many files.
  // FAILED_PRECONDITION, in one sentence with the address and the reason, if it cannot listen there.
  static Result<std::unique_ptr<Listener>> Bind(const std::string& host, std::uint16_t port,
                                                std::uint32_t max_connections);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens at a name of the abstract namespace too, for clients of this host. REQUIRES: before Start.
  // FAILED_PRECONDITION if it cannot.
  Status ListenLocally(const std::string& name);

  std::uint16_t port() const { return port_; }

  // Begins to accept connections, in a thread that calls `take`. Called once.
  void Start(Take take);
  // Stops to listen, and returns when no call of `take` is under way. Does nothing the second time.
  void Stop();

 private:
  explicit Listener(std::uint32_t max_connections);
  Status Open(const std::string& host, std::uint16_t port);
  void Run();
  void AcceptAll(int listening);
  void RefuseWithSpare(int listening);
  void LogRefusal(const std::string& why);

  std::uint32_t max_connections_;
  std::vector<int> listening_;
  std::uint16_t port_ = 0;
  int most_fd_ = 0;  // a connection with this number or a higher one is refused
  int spare_ = -1;   // a descriptor to give up when there is no other
  int stop_ = -1;    // readable once Run shall return
  Take take_;
  RareLog refusals_;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_LISTENER_H_
