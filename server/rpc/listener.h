// Listener owns the sockets at which a rank listens, and the thread that accepts connections.
//
// gRPC 1.51 can accept connections itself, but stops for good once an accept fails for lack of file
// descriptors, and accepts any number of connections. Listener closes a connection beyond the limit at once
// and waits for the next, so a rank always listens, and always has descriptors for its own work.
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
  // Takes over a connected, non-blocking socket.
  using Take = std::function<void(int socket)>;

  // Binds to the addresses of `host` (an IPv6 address has brackets; 0.0.0.0 and [::] are all of the
  // machine's, of IPv4 and IPv6) at one port; port 0 is any free one. Refuses connections while about
  // `max_connections` are open, or fewer if the process may not open so many files. FAILED_PRECONDITION, in
  // one sentence with the address and the reason: it cannot listen there.
  static Result<std::unique_ptr<Listener>> Bind(const std::string& host, std::uint16_t port,
                                                std::uint32_t max_connections);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Also listens at a name of the abstract namespace, for clients of this host. REQUIRES: called before
  // Start. FAILED_PRECONDITION: it cannot listen there.
  Status ListenLocally(const std::string& name);

  std::uint16_t port() const { return port_; }

  // Begins to accept connections, in a thread that calls `take`. Called once.
  void Start(Take take);
  // Stops listening, and returns when no call of `take` is under way. A second call does nothing.
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
  int spare_ = -1;   // a reserve descriptor, closed when there is no other
  int stop_ = -1;    // readable once Run must return
  Take take_;
  RareLog refusals_;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_LISTENER_H_
