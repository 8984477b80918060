// BatchExchange: one request of a lookup or push. By the data transport its arrays are sent from the
// caller's, and a lookup's values are received into the caller's.
// Thread-safety: DataExchange's.
#ifndef SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
#define SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/batch_messages.h"
#include "client/cpp/batches.h"
#include "client/cpp/transport.h"
#include "slotwise/data_type.h"
#include "slotwise/v1/data.pb.h"
#include "wire/frame_stream.h"

namespace slotwise::client {

// INTERNAL unless a reply has one message for each of so many pieces.
Status CheckReplyCounts(const v1::DataReply& reply, const Batches& batches, std::size_t pieces);

class BatchExchange final : public DataExchange {
 public:
  // The request is `batches->requests[request]`; values and gradients travel as `type`.
  BatchExchange(std::shared_ptr<const Batches> batches, std::size_t request, DataType type,
                std::shared_ptr<BatchMessages> messages)
      : batches_(std::move(batches)), request_(request), type_(type), messages_(std::move(messages)) {}

  std::string method() const override;
  const grpc::ByteBuffer& Message() override;
  Status ReadMessage(const grpc::ByteBuffer& reply) override;

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
  const std::shared_ptr<BatchMessages> messages_;
  std::optional<grpc::ByteBuffer> message_;  // once it is written
  // Arrays that are not sent or received as they lie: offsets of a part, and numbers of 16 bits.
  std::deque<std::vector<std::uint32_t>> offsets_;
  std::deque<std::vector<std::byte>> narrow_;
  std::array<std::byte, kArrayAlign> padding_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
