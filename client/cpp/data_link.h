// DataLink: a client's connection of the data transport (proto/slotwise/v1/data.proto) to one address. It
// connects when it is first used, and again after it was lost.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_DATA_LINK_H_
#define SLOTWISE_CLIENT_CPP_DATA_LINK_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/cpp/gpu_arena.h"
#include "client/cpp/rank_address.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"
#include "wire/access.h"

namespace slotwise::client {

// A request as it travels by the data transport. Its arrays are sent from where they lie, and a reply's
// values are received where they are to lie.
// Thread-safety: one call at a time.
class DataExchange {
 public:
  virtual ~DataExchange() = default;

  // Writes the request: its messages, and the arrays behind them, which have to stay until the call is over.
  using Body = std::vector<std::span<const std::byte>>;
  virtual void Write(v1::DataCall& call, Body& body) = 0;

  // Says where the values of a reply go: so many bytes, padding included. An error ends the call.
  using Room = std::vector<std::span<std::byte>>;
  virtual Result<Room> MakeRoom(const v1::DataReply& reply) = 0;
  // Returns how many bytes a reply's values have if all is well, padding included.
  virtual std::uint64_t ValueBytes() const = 0;
  // The values are there.
  virtual Status Read(const v1::DataReply& reply) = 0;

  // If not null, the request goes by an arena in a device's memory: what Write gives are arrays there,
  // without padding, and what MakeRoom says goes nowhere. The values stay where they are, from TakeValues on.
  virtual OnDevice* on_device() { return nullptr; }
  virtual void TakeValues(std::shared_ptr<std::byte[]>&& /*values*/) {}
};

// The threads that read and write all links of a client, and run what they call back.
class DataThreads {
 public:
  explicit DataThreads(int threads);
  // Waits for what is under way. REQUIRES: the links' calls are over.
  ~DataThreads();
  DataThreads(const DataThreads&) = delete;
  DataThreads& operator=(const DataThreads&) = delete;

 private:
  friend class DataLink;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class DataLink {
 public:
  // Hears what became of a call: gRPC's status of it, and if that is OK, what DataExchange::Read said.
  using Done = std::function<void(const grpc::Status& answer, const Status& read)>;

  // `threads` outlives the link. `access` has the token that calls bring to a server that asks for it; it
  // may be null if the address has no only_user.
  DataLink(DataThreads& threads, RankAddress address, std::shared_ptr<Access> access = nullptr);
  // Ends the connection. REQUIRES: all calls are over.
  ~DataLink();
  DataLink(const DataLink&) = delete;
  DataLink& operator=(const DataLink&) = delete;

  // Sends a call, of a trace (data.proto; empty: none), and returns its name. `done` is called once, later,
  // on one of the link's threads; from then on nothing of the exchange is in use.
  std::uint64_t Send(std::shared_ptr<DataExchange> exchange, std::chrono::steady_clock::time_point deadline,
                     Done done, std::string traceparent = {});
  // Ends a call soon, with CANCELLED, unless it is over.
  void Cancel(std::uint64_t call);

  // Returns whether there is a connection.
  bool connected() const;
  // Connects, if there is no connection.
  void Connect();
  // Ends the connection soon. REQUIRES: all calls are over, and none follows.
  void Close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DATA_LINK_H_
