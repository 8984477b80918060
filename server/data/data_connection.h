// DataConnection: the server's end of one connection of the data transport.
//
// A call's arrays are read, or copied from a shared buffer, into one piece of the engine's own memory, in
// which they stay until the device is done with them; a lookup's rows are sent from where the round left
// them. Thread-safety: FrameStream's.
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

// DataShared has what the connections of a server share.
struct DataShared {
  DataShared(const DataOptions& with, Engine& its_engine, Gate& its_gate)
      : DataShared(with, its_engine, its_gate,
                   [&its_engine](const Caller& caller) { return TablesFor(its_engine, caller); }) {}
  using FindTableOf = std::function<FindTable(const Caller&)>;  // the caller outlives the result
  // Calls are checked by the tables that `finds` says.
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
  std::atomic<bool> stopping = false;  // the server
  const FindTableOf find_table;
};

class DataConnection final : public FrameStream {
 public:
  // `shared`, and `loop`, whose the socket is, outlive the connection. `shared_buffer` is what it shares with
  // its client; null: nothing. `token` ends with it.
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
  // Whether the arrays of the call that is being read lie in device memory.
  bool OnDevice() const {
    return call_.has_allocations() && shared_buffer_ != nullptr && shared_buffer_->on_device;
  }
  // Sets the places of the call that is being read. Returns why it is none of this protocol; empty if it is
  // one.
  std::string FindPlaces();
  // Makes requests of the call's messages and hands them to the engine.
  void Submit(const Caller& caller, const AnswerCall& answer);
  // The same of a call whose arrays lie in device memory.
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
  Caller::Clock::time_point deadline_;  // on its timeout, which begins as its head is here
  std::shared_ptr<std::byte[]> block_;
  struct Places {
    std::span<const std::byte> body;
    std::span<std::byte> values;
  } places_;  // in the shared buffer
  Reservation received_;
  Reservation received_head_;

  std::mutex calls_mutex_;
  // Guarded by calls_mutex_:
  std::unordered_map<std::uint64_t, Caller> calls_;  // that are not answered, by id
  std::uint64_t answers_ = 0;                        // that are not with the system yet
  bool full_ = false;                                // nothing is read
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_DATA_CONNECTION_H_
