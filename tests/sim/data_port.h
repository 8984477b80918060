// DataPort: the data transport of a simulated rank. It consists of the server's own connections, over socket
// pairs, whose loop runs when it is polled, in the thread that runs everything.
//
// A client gets the results of a server's greeting, an end of a socket and the memory's descriptor, and
// writes frames. There is no thread, timer or clock, so everything happens in the seed's order.
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

// The client's end of a connection, and handles by which a simulation observes the server's end.
struct PortConnection {
  int socket = -1;                       // the client closes it
  std::shared_ptr<SharedMemory> memory;  // as mapped by the client
  std::weak_ptr<DataConnection> servers;
  std::weak_ptr<ClientSharedBuffer> servers_shared_buffer;
  int servers_socket = -1;
  ino_t servers_file = 0;

  // Returns whether the server has closed its end.
  bool HasEnded() const;
  // Returns whether the server has released the memory.
  bool memory_is_gone() const { return servers_shared_buffer.expired(); }
  // Returns whether the server has released the connection and its calls.
  bool all_is_gone() const { return servers.expired() && memory_is_gone(); }
};

class DataPort {
 public:
  // `on_find` is called whenever a call is checked, before its table is looked up; the server has copied the
  // call's arrays from host memory by then. `pause` is called while the server copies arrays from device
  // memory. REQUIRES: `engine` lives until Close has returned.
  DataPort(Engine& engine, std::uint32_t most_calls, std::function<void()> on_find,
           std::function<void()> pause);
  ~DataPort();
  DataPort(const DataPort&) = delete;
  DataPort& operator=(const DataPort&) = delete;

  // Greets the server as a client of that name, and gets a shared buffer of a MiB.
  PortConnection Connect(const std::string& name, bool on_device);

  // Lets the server do all work that it has now. Returns whether there was any.
  bool Poll();

  // Ends all connections, like a server that stops.
  void Close();
  // Returns the leaks: charges and objects that are left. Empty: none. REQUIRES: the engine is gone.
  std::string Leaks();

 private:
  BusyPolling loop_;
  Gate gate_;
  const std::function<void()> pause_;
  const std::unique_ptr<DataShared> shared_;
  std::vector<std::weak_ptr<DataConnection>> connections_;
  std::uint64_t device_bytes_ = 0;  // charged until the process ends
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DATA_PORT_H_
