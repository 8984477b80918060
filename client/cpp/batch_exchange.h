// Writes the requests of lookups and pushes, and reads their replies, for both transports. For gRPC, a
// message is written from the arrays, and read into the arrays, with one copy. The data transport sends the
// caller's arrays as they lie, and receives a lookup's values into the caller's array.
// Thread-safety: free functions. The requests of one call share its BatchMessages; each reads its own reply.
#ifndef SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
#define SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_

#include <grpcpp/support/byte_buffer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/batches.h"
#include "client/cpp/message_memory.h"
#include "client/cpp/table_states.h"
#include "client/cpp/transport.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"
#include "slotwise/v1/data.pb.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/array_align.h"

namespace slotwise::client {

// Writes a v1.LookupRequest for `samples` of a checked batch. The reply's values are to travel as `type`.
grpc::ByteBuffer LookupMessage(const TableBatch& batch, SampleRange samples, LookupMode mode, DataType type,
                               MessageMemory& memory);

// Writes a v1.PushRequest for `samples` of a checked batch. Their gradients travel as `type`.
grpc::ByteBuffer PushMessage(const TableBatch& batch, SampleRange samples, const StepId& step, DataType type,
                             MessageMemory& memory);

// Reads the values of a v1.LookupReply, which travelled as `type`, into `out`, float[samples · width].
// float32 values are copied once. Returns the table's state when the values were read. INTERNAL: the reply is
// no such message, or has values of another type. FAILED_PRECONDITION: the reply has another shape, because
// the table was made again after the client asked for its options.
Result<TableState> ReadLookupReply(const grpc::ByteBuffer& reply, std::uint64_t samples, std::uint32_t width,
                                   DataType type, std::span<float> out);

// BatchMessages writes the messages of a call's pieces and reads the replies to them, for both transports.
// LookupMessages does this for lookups, PushMessages for pushes.
class BatchMessages {
 public:
  virtual ~BatchMessages() = default;

  // Writes a piece's message with its arrays, for gRPC.
  virtual grpc::ByteBuffer Write(const Piece& piece) = 0;
  // Adds a piece's message without arrays to a call of the data transport.
  virtual void AddTo(v1::DataCall& call, const Piece& piece) = 0;

  // These two read the reply to a piece of a request: a gRPC message, or element `place` of a reply of the
  // data transport, whose values are already in their destination.
  virtual Status Read(std::size_t request, const Piece& piece, const grpc::ByteBuffer& reply) = 0;
  virtual Status Read(std::size_t request, const Piece& piece, const v1::DataReply& reply, int place) = 0;
  // Called when the replies to all pieces of a request were read.
  virtual void NoteAnswered(const Pieces& /*request*/) {}

 protected:
  // Arrays travel as `type`. `known` outlives the messages.
  BatchMessages(std::shared_ptr<Batches> batches, DataType type, std::shared_ptr<MessageMemory> memory,
                TableStates& known)
      : batches_(std::move(batches)), type_(type), memory_(std::move(memory)), known_(known) {}

  const TableBatch& TableOf(const Piece& piece) const { return batches_->tables[piece.table]; }
  // Notes the state of a piece's table that a reply names. DATA_LOSS: the state lacks acknowledged steps.
  Status Meet(std::size_t request, const Piece& piece, const TableState& met);

  const std::shared_ptr<Batches> batches_;
  const DataType type_;
  const std::shared_ptr<MessageMemory> memory_;
  TableStates& known_;
};

class LookupMessages final : public BatchMessages {
 public:
  LookupMessages(std::shared_ptr<Batches> batches, LookupMode mode, DataType type,
                 std::shared_ptr<MessageMemory> memory, TableStates& known)
      : BatchMessages(std::move(batches), type, std::move(memory), known), mode_(mode) {}

  grpc::ByteBuffer Write(const Piece& piece) override;
  void AddTo(v1::DataCall& call, const Piece& piece) override;
  Status Read(std::size_t request, const Piece& piece, const grpc::ByteBuffer& reply) override;
  Status Read(std::size_t request, const Piece& piece, const v1::DataReply& reply, int place) override;
  void NoteAnswered(const Pieces& request) override { answered_.Add(request); }

  const AnsweredParts& answered() const { return answered_; }
  const OldestStates& states() const { return states_; }

 private:
  Status Take(std::size_t request, const Piece& piece, const TableState& met);

  const LookupMode mode_;
  AnsweredParts answered_;
  OldestStates states_;
};

class PushMessages final : public BatchMessages {
 public:
  // `step_of` returns the step, and the part of the step, that a piece belongs to.
  using StepOf = std::function<StepId(const Piece&)>;
  PushMessages(std::shared_ptr<Batches> batches, StepOf step_of, DataType type,
               std::shared_ptr<MessageMemory> memory, TableStates& known)
      : BatchMessages(std::move(batches), type, std::move(memory), known),
        step_of_(std::move(step_of)),
        steps_(batches_->tables.size()) {}

  grpc::ByteBuffer Write(const Piece& piece) override;
  void AddTo(v1::DataCall& call, const Piece& piece) override;
  Status Read(std::size_t request, const Piece& piece, const grpc::ByteBuffer& reply) override;
  Status Read(std::size_t request, const Piece& piece, const v1::DataReply& reply, int place) override {
    return Take(request, piece, reply.pushes(place));
  }

  // Returns the number of the step that the push has become, by table. REQUIRES: all requests are answered.
  const std::vector<std::uint64_t>& steps() const { return steps_; }

 private:
  Status Take(std::size_t request, const Piece& piece, const v1::PushReply& reply);

  const StepOf step_of_;
  std::vector<std::uint64_t> steps_;
};

// A BatchExchange is one request whose batches lie in the host's memory. The data transport sends the
// caller's arrays, and receives a lookup's values into the caller's. gpu_exchange.h is for a GPU's memory.
class BatchExchange : public DataExchange {
 public:
  // For `batches->requests[request]`, whose values and gradients travel as `type`.
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

 protected:
  const Pieces& pieces() const { return batches_->requests[request_]; }
  const TableBatch& TableOf(const Piece& piece) const { return batches_->tables[piece.table]; }
  // Returns the number of a piece's values or gradients.
  std::uint64_t NumbersOf(const Piece& piece) const {
    return piece.samples.size() * TableOf(piece).checked.width;
  }

  const std::shared_ptr<const Batches> batches_;
  const std::size_t request_;
  const DataType type_;
  const std::shared_ptr<BatchMessages> messages_;

 private:
  virtual void AddArrays(const Piece& piece, v1::DataArrays& bytes, Body& body);
  // Adds the destination of a piece's `bytes` bytes of values.
  virtual void AddRoom(const Piece& piece, std::uint64_t bytes, Room& room);
  // Brings the values, which the data transport has received, to their destination.
  virtual void PlaceValues();
  Status ReadMessages(std::span<const grpc::ByteBuffer> replies);
  std::span<float> OutOf(const Piece& piece) const {
    return TableOf(piece).out.subspan(piece.samples.first * TableOf(piece).checked.width, NumbersOf(piece));
  }

  std::optional<grpc::ByteBuffer> message_;  // once it is written
  // Arrays that are not sent or received in place: the offsets of a part, and 16-bit numbers.
  std::deque<std::vector<std::uint32_t>> offsets_;
  std::deque<std::vector<std::byte>> narrow_;
  std::array<std::byte, kArrayAlign> padding_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
