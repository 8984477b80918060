// Lookups and pushes of arrays that lie in a GPU's memory.
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/c/handles.h"

namespace slotwise::c {
namespace {

using Outcome = slotwise_call::Outcome;
using End = slotwise_call::End;

// Batches as the C++ client takes them. The host cannot read their arrays.
struct GpuBatches {
  std::vector<std::string> tables;
  std::vector<BatchView> views;
  std::vector<std::span<const std::int64_t>> wide_offsets;
};

Result<GpuBatches> Read(std::span<const slotwise_batch> given) {
  GpuBatches batches;
  for (const slotwise_batch& batch : given) {
    const bool wide = batch.offsets_type == SLOTWISE_INT64;
    if (batch.offsets != nullptr && batch.offsets_type != SLOTWISE_UINT32 && !wide) {
      return InvalidArgument("offsets_type is " + std::to_string(batch.offsets_type) + ", which is no type");
    }
    const std::size_t offsets = batch.offsets == nullptr ? 0 : batch.offsets_count;
    const std::size_t weights = batch.weights == nullptr ? 0 : batch.keys_count;
    batches.tables.push_back(Text(batch.table));
    batches.views.push_back(
        {.keys = std::span(reinterpret_cast<const Key*>(batch.keys), batch.keys_count),
         .offsets = {static_cast<const std::uint32_t*>(batch.offsets), wide ? 0 : offsets},
         .weights = std::span(batch.weights, weights)});
    batches.wide_offsets.emplace_back(static_cast<const std::int64_t*>(batch.offsets), wide ? offsets : 0);
  }
  return batches;
}

Gpu GpuOf(const slotwise_gpu& gpu) { return {.name = Text(gpu.name), .stream = gpu.stream}; }

// Returns whether the device is a GPU. The processors of a host that stands for one have more to do than to
// wait.
bool IsGpu(const slotwise_gpu& gpu) { return Text(gpu.name) != "host"; }

// DLPack's tensor as its header has it (https://dmlc.github.io/dlpack, version 0).
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

// Keeps what a tensor of rows needs as long as it lives.
struct Rows {
  DlManaged managed{};
  std::shared_ptr<void> values;
  std::vector<std::int64_t> shape;
};

}  // namespace

slotwise_call* LookupOnGpu(slotwise_client* client, std::span<const slotwise_batch> given, LookupMode mode,
                           const slotwise_gpu& gpu, const slotwise_call* behind,
                           const slotwise_call_options* options) {
  return slotwise_call::Start(
      options,
      [&](const CallOptions& call, const End& end) {
        const auto push = behind == nullptr ? nullptr : behind->push();
        if (behind != nullptr && push == nullptr) {
          return end(InvalidArgument("behind: is no push by a GPU's memory that has begun"));
        }
        const auto read = Read(given);
        if (!read.ok()) return end(read.status());
        std::vector<GpuLookup> lookups;
        for (std::size_t i = 0; i < given.size(); ++i)
          lookups.push_back({read->tables[i], read->views[i], read->wide_offsets[i]});
        client->client.LookupOnGpuAsync(
            lookups, mode, GpuOf(gpu),
            [end](Result<std::vector<GpuRows>> rows) {
              if (!rows.ok()) return end(rows.status());
              slotwise_call::Answer answer;
              answer.gpu_rows = std::move(*rows);
              end(std::move(answer));
            },
            call, push);
      },
      IsGpu(gpu));
}

slotwise_call* PushFromGpu(slotwise_client* client, std::span<const slotwise_batch> given,
                           const PushNotes& notes, const slotwise_step* step, const slotwise_gpu& gpu,
                           const slotwise_call_options* options) {
  std::shared_ptr<GpuPushUnderWay> under_way;
  return slotwise_call::Start(
      options,
      [&](CallOptions call, const End& end) {
        const auto read = Read(given);
        if (!read.ok()) return end(read.status());
        notes.AddTo(call, given.size());
        std::vector<GpuPush> pushes;
        for (std::size_t i = 0; i < given.size(); ++i)
          pushes.push_back({read->tables[i], read->views[i], read->wide_offsets[i], given[i].values});
        under_way = client->client.PushOnGpuAsync(
            pushes, StepOf(step), GpuOf(gpu),
            [end](const Result<std::vector<std::uint64_t>>& steps) {
              end(steps.ok() ? Outcome(slotwise_call::Answer{.numbers = *steps}) : Outcome(steps.status()));
            },
            call);
      },
      IsGpu(gpu), &under_way);
}

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
