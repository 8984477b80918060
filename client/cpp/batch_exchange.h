// BatchExchange: one request of a lookup or push as it travels by the data transport: its arrays are sent
// from the caller's, and a lookup's values are received into the caller's.
// Thread-safety: DataExchange's.
#ifndef SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
#define SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "client/cpp/batches.h"
#include "client/cpp/data_link.h"
#include "slotwise/data_type.h"
#include "slotwise/v1/data.pb.h"
#include "wire/frame_stream.h"

namespace slotwise::client {

// INTERNAL unless a reply has one message for each of so many pieces.
Status CheckReplyCounts(const v1::DataReply& reply, const Batches& batches, std::size_t pieces);

class BatchExchange final : public DataExchange {
 public:
  // Adds a piece's message, without arrays, to a call.
  using AddMessage = std::function<void(const TableBatch&, const Piece&, v1::DataCall&)>;
  // Reads a reply's messages; a lookup's values are in place.
  using ReadReply = std::function<Status(const v1::DataReply&)>;

  // The request is `batches->requests[request]`; values and gradients travel as `type`.
  BatchExchange(std::shared_ptr<const Batches> batches, std::size_t request, DataType type,
                AddMessage add_message, ReadReply read_reply)
      : batches_(std::move(batches)),
        request_(request),
        type_(type),
        add_message_(std::move(add_message)),
        read_reply_(std::move(read_reply)) {}

  void Write(v1::DataCall& call, Body& body) override;
  Result<Room> MakeRoom(const v1::DataReply& reply) override;
  std::uint64_t ValueBytes() const override;
  Status Read(const v1::DataReply& reply) override;

 private:
  const Pieces& pieces() const { return batches_->requests[request_]; }
  std::span<float> OutOf(const Piece& piece) const;
  void AddArrays(const TableBatch& table, const Piece& piece, v1::DataArrays& bytes, Body& body);

  const std::shared_ptr<const Batches> batches_;
  const std::size_t request_;
  const DataType type_;
  const AddMessage add_message_;
  const ReadReply read_reply_;
  // Arrays that are not sent or received as they lie: offsets of a part, and numbers of 16 bits.
  std::deque<std::vector<std::uint32_t>> offsets_;
  std::deque<std::vector<std::byte>> narrow_;
  std::array<std::byte, kArrayAlign> padding_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
