// DataConnection: the server's end of one connection of the data transport.
//
// A call's arrays are read, or copied from a shared buffer, into one block of the engine's own memory, where
// they stay until the device is done with them. A lookup's rows are sent directly from the round's output.
// Thread-safety: as for FrameStream.
#ifndef SLOTWISE_SERVER_DATA_DATA_CONNECTION_H_
#define SLOTWISE_SERVER_DATA_DATA_CONNECTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/data/client_shared_buffer.h"
#include "server/data/data_server.h"
#include "server/engine/budget.h"
#include "server/intake/embedding_calls.h"
#include "server/intake/find_table.h"
#include "slotwise/v1/data.pb.h"
#include "wire/busy_polling.h"
#include "wire/frame_stream.h"

namespace slotwise {

// The state that the connections of a server share.
struct DataShared {
  DataShared(const DataOptions& with, Engine& its_engine, Gate& its_gate)
      : DataShared(with, its_engine, its_gate,
                   [&its_engine](const Caller& caller) { return TablesFor(its_engine, caller); }) {}
  using FindTableOf = std::function<FindTable(const Caller&)>;  // the caller outlives the result
  // Checks of calls find their tables by `finds`.
  DataShared(const DataOptions& with, Engine& its_engine, Gate& its_gate, FindTableOf finds)
      : options(with),
        engine(its_engine),
        gate(its_gate),
        received(with.max_received_bytes),
        shared_buffers(its_engine.device(), with.max_shared_bytes, with.max_device_shared_bytes),
        find_table(std::move(finds)) {}
  const DataOptions options;
  Engine& engine;
  Gate& gate;
  Budget received;
  ClientSharedBuffers shared_buffers;
  std::atomic<bool> stopping = false;  // the server is stopping
  const FindTableOf find_table;
};

class DataConnection final : public FrameStream {
 public:
  // `shared`, and the socket's `loop`, outlive the connection. `shared_buffer` is shared with the client;
  // null: none. The connection destroys `token` as it ends.
  DataConnection(Socket socket, std::string peer, DataShared& shared,
                 std::shared_ptr<ClientSharedBuffer> shared_buffer, BusyPolling& loop,
                 std::shared_ptr<void> token);

  using FrameStream::Start;

 private:
  std::optional<Room> OnHead(std::span<const std::byte> head, std::uint64_t body_bytes,
                             std::string& why) override;
  bool OnLargeHead(std::uint64_t bytes) override;
  bool OnBody() override;
  void OnEnd(const std::string& why, bool by_peer) override;

  std::shared_ptr<DataConnection> self() {
    return std::static_pointer_cast<DataConnection>(shared_from_this());
  }
  // Returns whether the arrays of the call being read lie in device memory.
  bool OnDevice() const {
    return call_.has_allocations() && shared_buffer_ != nullptr && shared_buffer_->on_device;
  }
  // Sets places_ for the call being read. Returns why the call breaks the protocol; empty if it does not.
  std::string FindPlaces();
  // Makes requests from the call's messages and submits them to the engine.
  void Submit(const Caller& caller, const AnswerCall& answer);
  // Does the same for a call whose arrays lie in device memory.
  void SubmitOnDevice(const Caller& caller, const AnswerCall& answer);
  void Answer(std::uint64_t id, const Caller& caller, Result<EmbeddingAnswers> answers);

  const std::string peer_;
  DataShared& shared_;
  const std::shared_ptr<ClientSharedBuffer> shared_buffer_;
  BusyPolling& loop_;
  const std::shared_ptr<void> token_;

  // The call that is being read.
  v1::DataCall call_;
  std::uint64_t frame_bytes_ = 0;
  Status refusal_;
  Caller::Clock::time_point deadline_;  // the call's timeout runs from the arrival of its head
  std::shared_ptr<std::byte[]> block_;
  struct Places {
    std::span<const std::byte> body;
    std::span<std::byte> values;
  } places_;  // in the shared buffer
  Reservation received_;
  Reservation received_head_;

  std::mutex calls_mutex_;
  // Guarded by calls_mutex_:
  std::unordered_map<std::uint64_t, Caller> calls_;  // unanswered calls, by id
  std::uint64_t answers_ = 0;                        // not yet taken by the system
  bool full_ = false;                                // reading has paused
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DATA_CONNECTION_H_
