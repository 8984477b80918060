// DataStream: a connection of the data transport once it is made, and the memory that it shares with the
// server.
// Thread-safety: as FrameStream; memory is put to use and freed by any thread.
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
  // Hears of replies and of the connection's end, in the io_context's thread.
  class Owner {
   public:
    virtual ~Owner() = default;
    // A reply's head has come. Returns where its values go, of so many bytes.
    virtual Room RoomFor(DataStream& stream, const v1::DataReply& reply, std::uint64_t body_bytes) = 0;
    // The values are there.
    virtual void Answered(const v1::DataReply& reply) = 0;
    virtual void Lost(const DataStream& stream, const std::string& why) = 0;
  };

  // The connection ends if a reply comes and the owner is gone.
  DataStream(DataConnecting::Made made, std::weak_ptr<Owner> owner);
  using FrameStream::Start;

  // Brings a call's body to the shared buffer, if it is large, there is one, and it has room: then the frame
  // has none. What lies on a device goes by its memory, or not at all.
  Status UseSharedBuffer(std::uint64_t id, DataExchange& exchange, v1::DataCall& head, OutgoingFrame& frame);
  // Returns where the body of a reply goes: its values, of so many bytes; nowhere if the exchange has got
  // them from a shared buffer already. UNAVAILABLE: the server has taken that memory back. Other errors are
  // the exchange's, of which the reply is none.
  Result<Room> MakeRoom(DataExchange& exchange, const v1::DataReply& reply, std::uint64_t body_bytes) const;
  // A call that was put into the device's memory is not sent.
  void Drop(std::uint64_t id) const { gpu_->Free(id); }

 private:
  // Returns whether the shared buffer had a reply's values, which are in `room` then.
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
