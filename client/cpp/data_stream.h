// DataStream is an established connection of the data transport, with the memory that it shares with the
// server.
// Thread-safety: as FrameStream; allocations are made and freed from any thread.
#ifndef SLOTWISE_CLIENT_CPP_DATA_STREAM_H_
#define SLOTWISE_CLIENT_CPP_DATA_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "client/cpp/data_connecting.h"
#include "client/cpp/shared_buffer.h"
#include "client/cpp/transport.h"
#include "slotwise/v1/data.pb.h"
#include "wire/frame_stream.h"

namespace slotwise::client {

class DataStream final : public FrameStream {
 public:
  // Called about replies and the connection's end, in the io_context's thread.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Called when a reply's head has come. Returns the destination of its `body_bytes` bytes of values.
    virtual Room RoomFor(DataStream& stream, const v1::DataReply& reply, std::uint64_t body_bytes) = 0;
    // Called when the values have come.
    virtual void Answered(const v1::DataReply& reply) = 0;
    virtual void Lost(const DataStream& stream, const std::string& why) = 0;
  };

  // The connection ends if a reply comes after the owner is gone.
  DataStream(DataConnecting::Made made, std::weak_ptr<Owner> owner);
  using FrameStream::Start;

  // Moves a call's body into the shared buffer if the body is large and there is room; then the frame has no
  // body. A call on a device is always moved into the device's memory, or fails.
  Status UseSharedBuffer(std::uint64_t id, DataExchange& exchange, v1::DataCall& head, OutgoingFrame& frame);
  // Returns the destination of a reply's values, of `body_bytes` bytes; nothing to receive if the exchange
  // has got the values from a shared buffer. UNAVAILABLE: the server has taken that memory back. Other errors
  // mean that the reply does not belong to the exchange.
  Result<Room> MakeRoom(DataExchange& exchange, const v1::DataReply& reply, std::uint64_t body_bytes) const;
  // Frees the allocations of a call that was put into the device's memory and is not sent.
  void Drop(std::uint64_t id) const { gpu_->Free(id); }

 private:
  // Takes a reply's values from the shared buffer into `room`. Returns false if they were not there.
  bool TakeFromSharedBuffer(std::uint64_t id, DataExchange& exchange, const DataExchange::Room& room) const;
  std::optional<Room> OnHead(std::span<const std::byte> head, std::uint64_t body_bytes,
                             std::string& why) override;
  bool OnBody() override;
  void OnEnd(const std::string& why, bool by_peer) override;

  const std::weak_ptr<Owner> owner_;
  std::optional<SharedBuffer> shared_buffer_;
  const std::shared_ptr<GpuSharedBuffer> gpu_;
  v1::DataReply reply_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DATA_STREAM_H_
