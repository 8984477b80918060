// GpuExchange: a lookup or push whose arrays lie in the memory of a GPU that the server has too. It is one
// request, of whole batches.
// Thread-safety: DataExchange's.
#ifndef SLOTWISE_CLIENT_CPP_GPU_EXCHANGE_H_
#define SLOTWISE_CLIENT_CPP_GPU_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/cpp/batch_exchange.h"
#include "client/cpp/batches.h"
#include "client/cpp/transport.h"
#include "slotwise/data_type.h"

namespace slotwise::client {

class GpuExchange final : public DataExchange {
 public:
  // REQUIRES: batches->gpu, and one request.
  GpuExchange(std::shared_ptr<const Batches> batches, DataType type, std::shared_ptr<BatchMessages> messages)
      : batches_(std::move(batches)), type_(type), messages_(std::move(messages)) {}

  void Write(v1::DataCall& call, Body& body) override;
  Result<Room> MakeRoom(const v1::DataReply& reply) override;
  std::uint64_t ValueBytes() const override;
  Status Read(const v1::DataReply& reply) override;
  OnDevice* on_device() override { return &batches_->gpu->of; }
  void TakeValues(std::shared_ptr<std::byte[]>&& values) override { values_ = std::move(values); }

 private:
  const Pieces& pieces() const { return batches_->requests.front(); }
  std::uint64_t NumbersOf(const Piece& piece) const {
    return piece.samples.size() * batches_->tables[piece.table].checked.width;
  }

  const std::shared_ptr<const Batches> batches_;
  const DataType type_;
  const std::shared_ptr<BatchMessages> messages_;
  std::shared_ptr<std::byte[]> values_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_GPU_EXCHANGE_H_
