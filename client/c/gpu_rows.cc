// Makes tensors of rows that lie in the memory of a GPU which the server uses too.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/c/call.h"

namespace slotwise::c {
namespace {

// DLPack's tensor, as in its header (https://dmlc.github.io/dlpack, version 0).
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};

// Owns the memory of a tensor of rows during the tensor's lifetime.
struct Rows {
  DlManaged managed{};
  std::shared_ptr<void> values;
  std::vector<std::int64_t> shape;
};

}  // namespace
}  // namespace slotwise::c

using slotwise::c::DlManaged;
using slotwise::c::OrNull;
using slotwise::c::Rows;

std::size_t slotwise_client_gpus(slotwise_client* client, char* names, std::size_t size) {
  std::string all;
  for (const std::string& gpu : client->client.Gpus()) all += gpu + "\n";
  if (all.size() < size) std::memcpy(names, all.c_str(), all.size() + 1);
  return all.size() + 1;
}

std::int32_t slotwise_call_has_arrays(const slotwise_call* call) {
  const auto push = call->push();
  return push != nullptr && push->has_arrays() ? 1 : 0;
}

void* slotwise_call_dlpack(slotwise_call* call, std::size_t index, std::int32_t device_type,
                           std::int32_t device_id, const std::int64_t* shape, std::size_t dimensions) {
  return OrNull([&]() -> void* {
    constexpr std::uint8_t kFloat = 2;
    constexpr std::uint8_t kBfloat = 4;
    auto& all = call->answer().gpu_rows;
    if (index >= all.size()) return nullptr;
    slotwise::GpuRows& rows = all[index];
    std::uint64_t size = 1;
    for (std::size_t i = 0; i < dimensions; ++i) size *= static_cast<std::uint64_t>(shape[i]);
    if (size != rows.size || rows.values == nullptr) return nullptr;
    auto owner = std::make_unique<Rows>();
    owner->values = std::move(rows.values);
    owner->shape.assign(shape, shape + dimensions);
    owner->managed.tensor = {.data = owner->values.get(),
                             .device_type = device_type,
                             .device_id = device_id,
                             .ndim = static_cast<std::int32_t>(dimensions),
                             .type_code = rows.type == slotwise::DataType::kBFloat16 ? kBfloat : kFloat,
                             .type_bits = static_cast<std::uint8_t>(8 * BytesOf(rows.type)),
                             .type_lanes = 1,
                             .shape = owner->shape.data(),
                             .strides = nullptr,
                             .byte_offset = 0};
    owner->managed.context = owner.get();
    owner->managed.deleter = [](DlManaged* managed) { delete static_cast<Rows*>(managed->context); };
    return &owner.release()->managed;
  });
}

void slotwise_dlpack_free(void* tensor) {
  auto* const managed = static_cast<DlManaged*>(tensor);
  managed->deleter(managed);
}
