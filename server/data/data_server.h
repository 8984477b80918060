// DataServer serves the data transport (proto/slotwise/v1/data.proto): the calls of the data path over plain
// connections.
//
// Connections of gRPC and of this transport come to the same port. Clients of both speak first, so the first
// byte tells the protocol.
// Thread-safety: any thread, but for the end, which waits for all others.
#ifndef SLOTWISE_SERVER_DATA_DATA_SERVER_H_
#define SLOTWISE_SERVER_DATA_DATA_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/engine/engine.h"
#include "server/intake/gate.h"

namespace slotwise {

// A connection whose client does not name its protocol within this time is closed.
inline constexpr std::chrono::milliseconds kHelloTimeout{20'000};

struct DataOptions {
  std::uint64_t max_message_bytes = std::uint64_t{64} << 20;  // of a frame; a larger one ends its connection
  std::uint32_t max_calls_per_connection = 256;               // the connection's next calls wait unread
  // Bounds the bytes of received requests that the engine has not got yet. Calls beyond it get UNAVAILABLE.
  std::uint64_t max_received_bytes = std::uint64_t{2} << 30;
  // Bounds the host memory of shared buffers. Clients beyond it get none.
  std::uint64_t max_shared_bytes = std::uint64_t{1} << 30;
  // Bounds the device memory of shared buffers, which counts until clients' processes are gone.
  std::uint64_t max_device_shared_bytes = std::uint64_t{1} << 30;
  // A connection ends if its peer does not take sent data or send the rest of a frame within this time.
  std::chrono::milliseconds reply_timeout{30'000};
  std::chrono::milliseconds hello_timeout = kHelloTimeout;
  std::size_t threads = 0;  // for reads and writes; 0: half of this machine's processors, at most 8
};

// A server's load by its clients.
struct DataLoad {
  std::uint64_t connections = 0;
  std::uint64_t received_bytes = 0;  // not yet handed to the engine, and of large heads
  std::uint64_t max_received_bytes = 0;
  std::uint64_t shared_bytes = 0;  // in shared buffers
  std::uint64_t max_shared_bytes = 0;
  std::uint64_t device_shared_buffer_bytes = 0;  // likewise of device memory
  std::uint64_t max_device_shared_bytes = 0;
};

class DataServer {
 public:
  // `engine` and `gate` outlive the server.
  DataServer(const DataOptions& options, Engine& engine, Gate& gate);
  // Ends all connections.
  ~DataServer();
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  // Takes a connected TCP or Unix socket of which nothing was read. A thread of the server passes the socket
  // to `others` if its client speaks another protocol. Closes the socket if it cannot be served.
  void Take(int socket, std::function<void(int socket)> others);

  DataLoad Load() const;

  // Ends all connections, and takes no more sockets.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DATA_SERVER_H_
