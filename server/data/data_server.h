// DataServer serves the data transport (proto/slotwise/v1/data.proto): the calls of the data path over plain
// connections.
//
// Connections of gRPC and of this transport come to the same port. Clients of both speak first, so the first
// byte says whose a connection is.
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

// Who connects and does not say what it speaks is let go after this time.
inline constexpr std::chrono::milliseconds kHelloTimeout{20'000};

struct DataOptions {
  std::uint64_t max_message_bytes = std::uint64_t{64} << 20;  // of a frame; a larger one ends its connection
  std::uint32_t max_calls_per_connection = 256;               // the connection's next calls wait unread
  // Requests that are received and not handed to the engine yet take at most so many bytes. Calls beyond that
  // are UNAVAILABLE.
  std::uint64_t max_received_bytes = std::uint64_t{2} << 30;
  // What connections of this host share with their clients takes at most so many bytes. Clients beyond that
  // share none.
  std::uint64_t max_shared_bytes = std::uint64_t{1} << 30;
  // The same of device memory, which counts until clients' processes are gone.
  std::uint64_t max_device_shared_bytes = std::uint64_t{1} << 30;
  // A connection ends whose peer does not take what was sent, or the rest of a frame of which does not come,
  // within this time.
  std::chrono::milliseconds reply_timeout{30'000};
  std::chrono::milliseconds hello_timeout = kHelloTimeout;
  std::size_t threads = 0;  // that read and write; 0: as many as half of this machine's processors, at most 8
};

// What a server has of its clients.
struct DataLoad {
  std::uint64_t connections = 0;
  std::uint64_t received_bytes = 0;  // that are not handed to the engine yet, and those of large heads
  std::uint64_t max_received_bytes = 0;
  std::uint64_t shared_bytes = 0;  // that clients have, or may take
  std::uint64_t max_shared_bytes = 0;
  std::uint64_t device_shared_buffer_bytes = 0;  // likewise, of the device's memory
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

  // Takes a connected socket, of TCP or a Unix one, of which nothing was read. If it is not of this
  // transport, hands it on to `others`, on a thread of the server's. Closes it if it cannot be served.
  void Take(int socket, std::function<void(int socket)> others);

  DataLoad Load() const;

  // Ends all connections; takes no more.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DATA_SERVER_H_
