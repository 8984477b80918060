// BatchMessages: what lookups and pushes do differently when a request of theirs is written and its reply
// read, whichever transport carries it.
// Thread-safety: the requests of one call use it side by side; each reads its own reply.
#ifndef SLOTWISE_CLIENT_CPP_BATCH_MESSAGES_H_
#define SLOTWISE_CLIENT_CPP_BATCH_MESSAGES_H_

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/cpp/batches.h"
#include "client/cpp/message_memory.h"
#include "client/cpp/table_states.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise::client {

class BatchMessages {
 public:
  virtual ~BatchMessages() = default;

  // Writes a piece's message with its arrays, for gRPC.
  virtual grpc::ByteBuffer Write(const TableBatch& table, const Piece& piece) = 0;
  // Adds a piece's message without arrays to a call of the data transport.
  virtual void AddTo(v1::DataCall& call, const TableBatch& table, const Piece& piece) = 0;

  // Read the replies to the pieces of a request: a message for each, or those of the data transport, whose
  // values are in place.
  virtual Status Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) = 0;
  virtual Status Read(std::size_t request, const v1::DataReply& reply) = 0;
};

class LookupMessages final : public BatchMessages {
 public:
  // `known` outlives the messages. Values travel as `type`.
  LookupMessages(std::shared_ptr<Batches> batches, LookupMode mode, DataType type,
                 std::shared_ptr<MessageMemory> memory, TableStates& known)
      : batches_(std::move(batches)), mode_(mode), type_(type), memory_(std::move(memory)), known_(known) {}

  grpc::ByteBuffer Write(const TableBatch& table, const Piece& piece) override;
  void AddTo(v1::DataCall& call, const TableBatch& table, const Piece& piece) override;
  Status Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) override;
  Status Read(std::size_t request, const v1::DataReply& reply) override;

  const AnsweredParts& answered() const { return answered_; }
  const OldestStates& states() const { return states_; }

 private:
  Status Meet(std::size_t request, const Piece& piece, const TableState& met);

  const std::shared_ptr<Batches> batches_;
  const LookupMode mode_;
  const DataType type_;
  const std::shared_ptr<MessageMemory> memory_;
  TableStates& known_;
  AnsweredParts answered_;
  OldestStates states_;
};

class PushMessages final : public BatchMessages {
 public:
  // `step_of` names the step, and the part of the step, that a piece is. Gradients travel as `type`.
  using StepOf = std::function<StepId(const Piece&)>;
  PushMessages(std::shared_ptr<Batches> batches, StepOf step_of, DataType type,
               std::shared_ptr<MessageMemory> memory, TableStates& known)
      : batches_(std::move(batches)),
        step_of_(std::move(step_of)),
        type_(type),
        memory_(std::move(memory)),
        known_(known),
        steps_(batches_->tables.size()) {}

  grpc::ByteBuffer Write(const TableBatch& table, const Piece& piece) override;
  void AddTo(v1::DataCall& call, const TableBatch& table, const Piece& piece) override;
  Status Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) override;
  Status Read(std::size_t request, const v1::DataReply& reply) override;

  // Returns which step of its table the push has become, by table. REQUIRES: all requests are answered.
  const std::vector<std::uint64_t>& steps() const { return steps_; }

 private:
  Status Take(std::size_t request, const Piece& piece, const v1::PushReply& reply);

  const std::shared_ptr<Batches> batches_;
  const StepOf step_of_;
  const DataType type_;
  const std::shared_ptr<MessageMemory> memory_;
  TableStates& known_;
  std::vector<std::uint64_t> steps_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BATCH_MESSAGES_H_
