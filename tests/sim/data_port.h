// DataPort: a simulated rank's data transport: the server's own connections, over pairs of sockets, whose
// loop runs when it is polled, in the thread that runs everything else.
//
// Clients get what a server's greeting gives them, an end of a socket and the memory's descriptor, and write
// frames. There is no thread, no timer and no clock in it, so everything happens in the seed's order.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_DATA_PORT_H_
#define SLOTWISE_TESTS_SIM_DATA_PORT_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/data/data_connection.h"
#include "wire/shared_memory.h"

namespace slotwise::sim {

// The client's end of a connection, and what a simulation knows of the server's.
struct PortConnection {
  int socket = -1;                       // the client's, which closes it
  std::shared_ptr<SharedMemory> memory;  // as the client has mapped it
  std::weak_ptr<DataConnection> servers;
  std::weak_ptr<ClientSharedBuffer> servers_shared_buffer;
  int servers_socket = -1;
  ino_t servers_file = 0;

  // Whether the server has closed its end.
  bool HasEnded() const;
  // Whether the server has the memory no more.
  bool memory_is_gone() const { return servers_shared_buffer.expired(); }
  // Whether the server has nothing of the connection any more, nor of its calls.
  bool all_is_gone() const { return servers.expired() && memory_is_gone(); }
};

class DataPort {
 public:
  // `on_find` is called whenever a call is checked, before its table is looked up: by then the server has
  // copied a call's arrays out of the host's memory. `pause`: while it copies arrays of a device's memory.
  // `engine` lives until Close has returned.
  DataPort(Engine& engine, std::uint32_t most_calls, std::function<void()> on_find,
           std::function<void()> pause);
  ~DataPort();
  DataPort(const DataPort&) = delete;
  DataPort& operator=(const DataPort&) = delete;

  // A client of that name greets the server, and is given a shared buffer of a MiB.
  PortConnection Connect(const std::string& name, bool on_device);

  // Lets the server do all that it can do now. Returns whether there was something.
  bool Poll();

  // Ends all connections, as a server that stops does.
  void Close();
  // REQUIRES: the engine is gone. Returns what is still charged, or still there; empty: nothing.
  std::string Leaks();

 private:
  BusyPolling loop_;
  Gate gate_;
  const std::function<void()> pause_;
  const std::unique_ptr<DataShared> shared_;
  std::vector<std::weak_ptr<DataConnection>> connections_;
  std::uint64_t device_bytes_ = 0;  // charged until this process is gone
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DATA_PORT_H_
