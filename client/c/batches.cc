// Lookups and pushes, of arrays in the host's memory or a GPU's.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/c/handles.h"

namespace slotwise::c {
namespace {

using Outcome = slotwise_call::Outcome;
using End = slotwise_call::End;

// Batches as the C++ client takes them, and the offsets that had to be made narrower for it.
struct Batches {
  std::vector<std::string> tables;
  std::vector<BatchView> views;
  std::vector<std::span<float>> values;
  std::vector<std::unique_ptr<std::uint32_t[]>> offsets;
};

Result<std::span<const std::uint32_t>> OffsetsOf(const slotwise_batch& batch, Batches& batches) {
  const std::size_t count = batch.offsets_count;
  if (batch.offsets == nullptr) return std::span<const std::uint32_t>();
  if (count == 0) return InvalidArgument("offsets has 0 elements: must have one more than there are bags");
  if (batch.offsets_type == SLOTWISE_UINT32) {
    return std::span(static_cast<const std::uint32_t*>(batch.offsets), count);
  }
  if (batch.offsets_type != SLOTWISE_INT64) {
    return InvalidArgument("offsets_type is " + std::to_string(batch.offsets_type) + ", which is no type");
  }
  const std::span from(static_cast<const std::int64_t*>(batch.offsets), count);
  auto narrow = std::make_unique_for_overwrite<std::uint32_t[]>(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (from[i] < 0 || from[i] > std::numeric_limits<std::uint32_t>::max()) {
      return InvalidArgument("offsets[" + std::to_string(i) + "] is " + std::to_string(from[i]) +
                             ": must be 0 to the number of keys, " + std::to_string(batch.keys_count));
    }
    narrow[i] = static_cast<std::uint32_t>(from[i]);
  }
  batches.offsets.push_back(std::move(narrow));
  return std::span<const std::uint32_t>(batches.offsets.back().get(), count);
}

Result<std::shared_ptr<Batches>> Read(std::span<const slotwise_batch> given) {
  auto batches = std::make_shared<Batches>();
  for (const slotwise_batch& batch : given) {
    const auto offsets = OffsetsOf(batch, *batches);
    if (!offsets.ok()) return offsets.status();
    const std::size_t weights = batch.weights == nullptr ? 0 : batch.keys_count;
    batches->tables.push_back(Text(batch.table));
    batches->views.push_back({.keys = std::span(reinterpret_cast<const Key*>(batch.keys), batch.keys_count),
                              .offsets = *offsets,
                              .weights = std::span(batch.weights, weights)});
    batches->values.emplace_back(batch.values, batch.values_count);
  }
  return batches;
}

// A caller says this of the batches of a push. Each array is null, or has an element for each batch.
struct PushNotes {
  const slotwise_looked_up* looked_up = nullptr;
  const float* learning_rates = nullptr;  // NaN: the table's own

  void AddTo(CallOptions& call, std::size_t batches) const {
    for (std::size_t i = 0; looked_up != nullptr && i < batches; ++i) {
      call.looked_up.push_back({.lineage = looked_up[i].lineage, .table_step = looked_up[i].table_step});
    }
    for (std::size_t i = 0; learning_rates != nullptr && i < batches; ++i) {
      const float rate = learning_rates[i];
      call.learning_rates.push_back(std::isnan(rate) ? std::nullopt : std::optional(rate));
    }
  }
};

slotwise_call* LookupOnHost(slotwise_client* client, std::span<const slotwise_batch> given, LookupMode mode,
                            const slotwise_call_options* options) {
  return slotwise_call::Start(options, [&](const CallOptions& call, const End& end) {
    const auto read = Read(given);
    if (!read.ok()) return end(read.status());
    const Batches& batches = **read;
    std::vector<TableLookup> lookups;
    for (std::size_t i = 0; i < given.size(); ++i) {
      lookups.push_back({batches.tables[i], batches.views[i], batches.values[i]});
    }
    client->client.LookupAsync(
        lookups, mode,
        [end, keep = *read](Status status) {
          end(status.ok() ? Outcome(slotwise_call::Answer{}) : Outcome(std::move(status)));
        },
        call);
  });
}

slotwise_call* PushFromHost(slotwise_client* client, std::span<const slotwise_batch> given,
                            const PushNotes& notes, const slotwise_step* step,
                            const slotwise_call_options* options) {
  return slotwise_call::Start(options, [&](CallOptions call, const End& end) {
    notes.AddTo(call, given.size());
    const auto read = Read(given);
    if (!read.ok()) return end(read.status());
    const Batches& batches = **read;
    std::vector<TablePush> pushes;
    for (std::size_t i = 0; i < given.size(); ++i) {
      pushes.push_back({batches.tables[i], batches.views[i], batches.values[i]});
    }
    client->client.PushAsync(
        pushes, StepOf(step),
        [end, keep = *read](const Result<std::vector<std::uint64_t>>& steps) {
          end(steps.ok() ? Outcome(slotwise_call::Answer{.numbers = *steps}) : Outcome(steps.status()));
        },
        call);
  });
}

// Returns a call that has failed.
slotwise_call* Refused(Status why, const slotwise_call_options* options) {
  return slotwise_call::Start(options,
                              [&](const CallOptions&, const End& end) { return end(std::move(why)); });
}

// Batches as the C++ client takes them. The host cannot read their arrays.
struct GpuBatches {
  std::vector<std::string> tables;
  std::vector<BatchView> views;
  std::vector<std::span<const std::int64_t>> wide_offsets;
};

Result<GpuBatches> ReadOnGpu(std::span<const slotwise_batch> given) {
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
        const auto read = ReadOnGpu(given);
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
        const auto read = ReadOnGpu(given);
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
}  // namespace slotwise::c

using slotwise::c::DlManaged;
using slotwise::c::OrNull;
using slotwise::c::Rows;

slotwise_call* slotwise_lookup(slotwise_client* client, const slotwise_batch* batches, std::size_t count,
                               std::int32_t mode, const slotwise_gpu* gpu, const slotwise_call* behind,
                               const slotwise_call_options* call) {
  return OrNull([&] {
    const std::span given(batches, count);
    const auto read = slotwise::c::ModeOf(mode);
    if (!read.ok()) return slotwise::c::Refused(read.status(), call);
    return gpu == nullptr ? slotwise::c::LookupOnHost(client, given, *read, call)
                          : slotwise::c::LookupOnGpu(client, given, *read, *gpu, behind, call);
  });
}

void slotwise_client_looked_up(slotwise_client* client, const char* table, slotwise_looked_up* state) {
  const slotwise::LookedUpState of = client->client.LookedUp(slotwise::c::Text(table));
  *state = {.lineage = of.lineage, .table_step = of.table_step};
}

slotwise_call* slotwise_push(slotwise_client* client, const slotwise_batch* batches, std::size_t count,
                             const slotwise_looked_up* looked_up, const float* learning_rates,
                             const slotwise_step* step, const slotwise_gpu* gpu,
                             const slotwise_call_options* call) {
  return OrNull([&] {
    const std::span given(batches, count);
    const slotwise::c::PushNotes notes{looked_up, learning_rates};
    return gpu == nullptr ? slotwise::c::PushFromHost(client, given, notes, step, call)
                          : slotwise::c::PushFromGpu(client, given, notes, step, *gpu, call);
  });
}

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
