// Lookups and pushes, of arrays in the host's memory or a GPU's.
#include <cmath>
#include <cstddef>
#include <cstdint>
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
using NarrowOffsets = std::vector<std::unique_ptr<std::uint32_t[]>>;

// Batches as the C++ client takes them.
struct Batches {
  std::vector<std::string> tables;
  std::vector<BatchView> views;
  std::vector<std::span<const std::int64_t>> wide_offsets;  // on a GPU, which the host cannot read
  NarrowOffsets narrow;                                     // on the host: those that had 64 bits
};

Result<std::span<const std::uint32_t>> Narrow(const slotwise_batch& batch, NarrowOffsets& offsets) {
  const std::span from(static_cast<const std::int64_t*>(batch.offsets), batch.offsets_count);
  auto narrow = std::make_unique_for_overwrite<std::uint32_t[]>(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] < 0 || from[i] > std::numeric_limits<std::uint32_t>::max()) {
      return InvalidArgument("offsets[" + std::to_string(i) + "] is " + std::to_string(from[i]) +
                             ": must be 0 to the number of keys, " + std::to_string(batch.keys_count));
    }
    narrow[i] = static_cast<std::uint32_t>(from[i]);
  }
  offsets.push_back(std::move(narrow));
  return std::span<const std::uint32_t>(offsets.back().get(), from.size());
}

// Adds a batch, whose arrays lie on a GPU or on the host.
Status Add(const slotwise_batch& batch, bool on_gpu, Batches& batches) {
  const bool there = batch.offsets != nullptr;
  const bool wide = there && batch.offsets_type == SLOTWISE_INT64;
  if (there && batch.offsets_count == 0 && !on_gpu)
    return InvalidArgument("offsets has 0 elements: must have one more than there are bags");
  if (there && batch.offsets_type != SLOTWISE_UINT32 && !wide) {
    return InvalidArgument("offsets_type is " + std::to_string(batch.offsets_type) + ", which is no type");
  }
  std::span<const std::uint32_t> offsets;
  std::span<const std::int64_t> wide_offsets;
  if (wide && on_gpu) {
    wide_offsets = {static_cast<const std::int64_t*>(batch.offsets), batch.offsets_count};
  } else if (wide) {
    const auto narrow = Narrow(batch, batches.narrow);
    if (!narrow.ok()) return narrow.status();
    offsets = *narrow;
  } else if (there) {
    offsets = {static_cast<const std::uint32_t*>(batch.offsets), batch.offsets_count};
  }
  batches.tables.push_back(Text(batch.table));
  batches.views.push_back({.keys = std::span(reinterpret_cast<const Key*>(batch.keys), batch.keys_count),
                           .offsets = offsets,
                           .weights = {batch.weights, batch.weights == nullptr ? 0 : batch.keys_count}});
  batches.wide_offsets.push_back(wide_offsets);
  return {};
}

Result<Batches> Read(std::span<const slotwise_batch> given, bool on_gpu) {
  Batches batches;
  for (const slotwise_batch& batch : given) {
    if (Status status = Add(batch, on_gpu, batches); !status.ok()) return status;
  }
  return batches;
}

// Returns an owner of offsets that live as long as their call; null if there are none.
std::shared_ptr<NarrowOffsets> Kept(NarrowOffsets offsets) {
  return offsets.empty() ? nullptr : std::make_shared<NarrowOffsets>(std::move(offsets));
}

Gpu GpuOf(const slotwise_gpu& gpu) { return {.name = Text(gpu.name), .stream = gpu.stream}; }

// Returns whether the call ends soon: whether it goes by the memory of a GPU. The processors of a host that
// stands for a GPU have more to do than to wait.
bool EndsSoon(const slotwise_gpu* gpu) { return gpu != nullptr && Text(gpu->name) != "host"; }

void LookUp(Client& client, std::span<const slotwise_batch> given, std::int32_t mode, const slotwise_gpu* gpu,
            const slotwise_call* behind, const CallOptions& call, const End& end) {
  const auto checked = ModeOf(mode);
  if (!checked.ok()) return end(checked.status());
  const auto push = gpu == nullptr || behind == nullptr ? nullptr : behind->push();
  if (gpu != nullptr && behind != nullptr && push == nullptr) {
    return end(InvalidArgument("behind: is no push by a GPU's memory that has begun"));
  }
  auto read = Read(given, gpu != nullptr);
  if (!read.ok()) return end(read.status());
  if (gpu == nullptr) {
    std::vector<TableLookup> lookups;
    for (std::size_t i = 0; i < given.size(); ++i)
      lookups.push_back({read->tables[i], read->views[i], {given[i].values, given[i].values_count}});
    const auto done = [end, keep = Kept(std::move(read->narrow))](Status status) {
      end(status.ok() ? Outcome(slotwise_call::Answer{}) : Outcome(std::move(status)));
    };
    return client.LookupAsync(lookups, *checked, done, call);
  }
  std::vector<GpuLookup> lookups;
  for (std::size_t i = 0; i < given.size(); ++i)
    lookups.push_back({read->tables[i], read->views[i], read->wide_offsets[i]});
  const auto done = [end](Result<std::vector<GpuRows>> rows) {
    if (!rows.ok()) return end(rows.status());
    slotwise_call::Answer answer;
    answer.gpu_rows = std::move(*rows);
    end(std::move(answer));
  };
  client.LookupOnGpuAsync(lookups, *checked, GpuOf(*gpu), done, call, push);
}

// Returns what others may come behind; null of a push from the host's memory.
std::shared_ptr<GpuPushUnderWay> Push(Client& client, std::span<const slotwise_batch> given,
                                      const slotwise_step* step, const slotwise_gpu* gpu,
                                      const CallOptions& call, const End& end) {
  auto read = Read(given, gpu != nullptr);
  if (!read.ok()) {
    end(read.status());
    return nullptr;
  }
  const auto done = [end,
                     keep = Kept(std::move(read->narrow))](const Result<std::vector<std::uint64_t>>& steps) {
    end(steps.ok() ? Outcome(slotwise_call::Answer{.numbers = *steps}) : Outcome(steps.status()));
  };
  if (gpu == nullptr) {
    std::vector<TablePush> pushes;
    for (std::size_t i = 0; i < given.size(); ++i)
      pushes.push_back({read->tables[i], read->views[i], {given[i].values, given[i].values_count}});
    client.PushAsync(pushes, StepOf(step), done, call);
    return nullptr;
  }
  std::vector<GpuPush> pushes;
  for (std::size_t i = 0; i < given.size(); ++i)
    pushes.push_back({read->tables[i], read->views[i], read->wide_offsets[i], given[i].values});
  return client.PushOnGpuAsync(pushes, StepOf(step), GpuOf(*gpu), done, call);
}

}  // namespace
}  // namespace slotwise::c

using slotwise::CallOptions;
using slotwise::c::OrNull;

slotwise_call* slotwise_lookup(slotwise_client* client, const slotwise_batch* batches, std::size_t count,
                               std::int32_t mode, const slotwise_gpu* gpu, const slotwise_call* behind,
                               const slotwise_call_options* call) {
  return OrNull([&] {
    const auto begin = [&](const CallOptions& options, const slotwise_call::End& end) {
      slotwise::c::LookUp(client->client, {batches, count}, mode, gpu, behind, options, end);
    };
    return slotwise_call::Start(call, begin, slotwise::c::EndsSoon(gpu));
  });
}

slotwise_call* slotwise_push(slotwise_client* client, const slotwise_batch* batches, std::size_t count,
                             const slotwise_looked_up* looked_up, const float* learning_rates,
                             const slotwise_step* step, const slotwise_gpu* gpu,
                             const slotwise_call_options* call) {
  return OrNull([&] {
    slotwise_call::Push under_way;
    const auto begin = [&](CallOptions options, const slotwise_call::End& end) {
      for (std::size_t i = 0; looked_up != nullptr && i < count; ++i) {
        options.looked_up.push_back({.lineage = looked_up[i].lineage, .table_step = looked_up[i].table_step});
      }
      for (std::size_t i = 0; learning_rates != nullptr && i < count; ++i) {
        const float rate = learning_rates[i];  // NaN: the table's own
        options.learning_rates.push_back(std::isnan(rate) ? std::nullopt : std::optional(rate));
      }
      under_way = slotwise::c::Push(client->client, {batches, count}, step, gpu, options, end);
    };
    return slotwise_call::Start(call, begin, slotwise::c::EndsSoon(gpu), &under_way);
  });
}

void slotwise_client_looked_up(slotwise_client* client, const char* table, slotwise_looked_up* state) {
  const slotwise::LookedUpState of = client->client.LookedUp(slotwise::c::Text(table));
  *state = {.lineage = of.lineage, .table_step = of.table_step};
}
