// The requests of lookups and pushes and their replies: as gRPC carries them, written from arrays and read
// into arrays with one copy; and as the data transport carries them, which sends the arrays from the
// caller's, and receives a lookup's values into the caller's.
// Thread-safety: free functions. The requests of one call use its BatchMessages side by side; each reads its
// own reply.
#ifndef SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
#define SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
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

namespace slotwise::client {

// Return a part's request without its arrays. `acknowledged`: the newest state of the table in which a step
// of this client was acknowledged; without an incarnation the request does not say.
v1::LookupRequest LookupFields(std::string_view table, LookupMode mode, DataType type, SampleRange samples,
                               const TableState& acknowledged = {});
// `looked_up`: what the rows were read of that the gradients are of; lineage 0: nobody knows.
// `learning_rate`: the step's own, if it has one.
v1::PushRequest PushFields(std::string_view table, const StepId& step, DataType type, SampleRange samples,
                           const TableState& looked_up, const TableState& acknowledged = {},
                           std::optional<float> learning_rate = {});

// Writes a v1.LookupRequest for `samples` of a batch.
grpc::ByteBuffer LookupMessage(MessageMemory& memory, std::string_view table, LookupMode mode, DataType type,
                               const CheckedBatch& batch, SampleRange samples,
                               const TableState& acknowledged = {});

// Writes a v1.PushRequest for `samples` of a batch. `gradients` are the whole batch's; the message holds them
// as `type`.
grpc::ByteBuffer PushMessage(MessageMemory& memory, std::string_view table, const StepId& step,
                             const CheckedBatch& batch, SampleRange samples, std::span<const float> gradients,
                             DataType type, const TableState& looked_up = {},
                             const TableState& acknowledged = {}, std::optional<float> learning_rate = {});

// Checks that a reply with `received` bytes of values is one to `samples` samples of `width` numbers, which
// travelled as `type`, and that they are as many `numbers` as there is room for. Errors as ReadLookupReply's.
Status CheckReplyShape(const v1::LookupReply& fields, std::uint64_t received, std::uint64_t samples,
                       std::uint32_t width, DataType type, std::size_t numbers);

// Reads the values of a v1.LookupReply, which travelled as `type`, to `out`, float[samples · width]. float32
// values are copied once. INTERNAL: the reply is not such a message, or has values of another type.
// FAILED_PRECONDITION: the reply has another shape, because the table was made again since the client asked
// for its options. Returns the state of the table that the values were read of.
Result<TableState> ReadLookupReply(const grpc::ByteBuffer& reply, std::uint64_t samples, std::uint32_t width,
                                   DataType type, std::span<float> out);

// What lookups and pushes do differently when a request of theirs is written and its reply read, whichever
// transport carries it.
class BatchMessages {
 public:
  virtual ~BatchMessages() = default;

  // Writes a piece's message with its arrays, for gRPC.
  virtual grpc::ByteBuffer Write(const Piece& piece) = 0;
  // Adds a piece's message without arrays to a call of the data transport.
  virtual void AddTo(v1::DataCall& call, const Piece& piece) = 0;

  // Read the replies to the pieces of a request: a message for each, or those of the data transport, whose
  // values are in place.
  virtual Status Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) = 0;
  virtual Status Read(std::size_t request, const v1::DataReply& reply) = 0;

 protected:
  // Arrays travel as `type`. `known` outlives the messages.
  BatchMessages(std::shared_ptr<Batches> batches, DataType type, std::shared_ptr<MessageMemory> memory,
                TableStates& known)
      : batches_(std::move(batches)), type_(type), memory_(std::move(memory)), known_(known) {}

  const TableBatch& TableOf(const Piece& piece) const { return batches_->tables[piece.table]; }

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
  Status Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) override;
  Status Read(std::size_t request, const v1::DataReply& reply) override;

  const AnsweredParts& answered() const { return answered_; }
  const OldestStates& states() const { return states_; }

 private:
  Status Meet(std::size_t request, const Piece& piece, const TableState& met);

  const LookupMode mode_;
  AnsweredParts answered_;
  OldestStates states_;
};

class PushMessages final : public BatchMessages {
 public:
  // `step_of` names the step, and the part of the step, that a piece is.
  using StepOf = std::function<StepId(const Piece&)>;
  PushMessages(std::shared_ptr<Batches> batches, StepOf step_of, DataType type,
               std::shared_ptr<MessageMemory> memory, TableStates& known)
      : BatchMessages(std::move(batches), type, std::move(memory), known),
        step_of_(std::move(step_of)),
        steps_(batches_->tables.size()) {}

  grpc::ByteBuffer Write(const Piece& piece) override;
  void AddTo(v1::DataCall& call, const Piece& piece) override;
  Status Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) override;
  Status Read(std::size_t request, const v1::DataReply& reply) override;

  // Returns which step of its table the push has become, by table. REQUIRES: all requests are answered.
  const std::vector<std::uint64_t>& steps() const { return steps_; }

 private:
  Status Take(std::size_t request, const Piece& piece, const v1::PushReply& reply);

  const StepOf step_of_;
  std::vector<std::uint64_t> steps_;
};

// Returns the exchange of `batches->requests[request]`, whose values and gradients travel as `type`.
// REQUIRES: batches whose arrays lie in the memory of a GPU have one request.
std::shared_ptr<DataExchange> MakeExchange(std::shared_ptr<const Batches> batches, std::size_t request,
                                           DataType type, std::shared_ptr<BatchMessages> messages);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BATCH_EXCHANGE_H_
