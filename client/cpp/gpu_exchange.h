// GpuExchange is one request of whole batches that lie in the memory of a GPU which the server uses too.
// Thread-safety: as any Exchange (transport.h).
#ifndef SLOTWISE_CLIENT_CPP_GPU_EXCHANGE_H_
#define SLOTWISE_CLIENT_CPP_GPU_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "client/cpp/batch_exchange.h"

namespace slotwise::client {

class GpuExchange final : public BatchExchange {
 public:
  using BatchExchange::BatchExchange;

  OnDevice* on_device() override { return &batches_->gpu->of; }
  void TakeValues(std::shared_ptr<std::byte[]>&& values) override { values_ = std::move(values); }

 private:
  void AddArrays(const Piece& piece, v1::DataArrays& bytes, Body& body) override;
  void PlaceValues() override;
  void AddRoom(const Piece& /*piece*/, std::uint64_t /*bytes*/, Room& /*room*/) override {}

  std::shared_ptr<std::byte[]> values_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_GPU_EXCHANGE_H_
