// Implements lookups and pushes of arrays in the host's memory or a GPU's.
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

#include "client/c/call.h"

namespace slotwise::c {
namespace {

using Outcome = slotwise_call::Outcome;
using End = slotwise_call::End;
using NarrowOffsets = std::vector<std::unique_ptr<std::uint32_t[]>>;

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

// Reads batches, without their values, into TableLookups, TablePushes, GpuLookups or GpuPushes. Narrows
// 64-bit offsets to 32 bits, except on a GPU, where the host cannot read them.
template <class Each>
Result<std::vector<Each>> Read(std::span<const slotwise_batch> given, NarrowOffsets& narrow) {
  constexpr bool kOnGpu = requires(Each each) { each.wide_offsets; };
  std::vector<Each> read;
  for (const slotwise_batch& batch : given) {
    const bool there = batch.offsets != nullptr;
    const bool wide = there && batch.offsets_type == SLOTWISE_INT64;
    if (there && batch.offsets_count == 0 && !kOnGpu)
      return InvalidArgument("offsets has 0 elements: must have one more than there are bags");
    if (there && batch.offsets_type != SLOTWISE_UINT32 && !wide) {
      return InvalidArgument("offsets_type is " + std::to_string(batch.offsets_type) + ", which is no type");
    }
    Each& each = read.emplace_back();
    if (batch.table != nullptr) each.table = batch.table;
    each.batch.keys = std::span(reinterpret_cast<const Key*>(batch.keys), batch.keys_count);
    each.batch.weights = {batch.weights, batch.weights == nullptr ? 0 : batch.keys_count};
    if (!wide) {
      each.batch.offsets = {static_cast<const std::uint32_t*>(batch.offsets),
                            there ? batch.offsets_count : 0};
    } else if constexpr (kOnGpu) {
      each.wide_offsets = {static_cast<const std::int64_t*>(batch.offsets), batch.offsets_count};
    } else {
      const auto offsets = Narrow(batch, narrow);
      if (!offsets.ok()) return offsets.status();
      each.batch.offsets = *offsets;
    }
  }
  return read;
}

Gpu GpuOf(const slotwise_gpu& gpu) { return {.name = Text(gpu.name), .stream = gpu.stream}; }

// Returns whether the call ends soon, so that its waiter stays awake: whether it goes by a GPU's memory. If
// the host stands for a GPU, its processors are needed for the work itself.
bool EndsSoon(const slotwise_gpu* gpu) { return gpu != nullptr && Text(gpu->name) != "host"; }

void LookUp(Client& client, std::span<const slotwise_batch> given, std::int32_t mode, const slotwise_gpu* gpu,
            const slotwise_call* behind, const CallOptions& call, const End& end) {
  const auto checked = ModeOf(mode);
  if (!checked.ok()) return end(checked.status());
  const auto push = gpu == nullptr || behind == nullptr ? nullptr : behind->push();
  if (gpu != nullptr && behind != nullptr && push == nullptr) {
    return end(InvalidArgument("behind: is no push by a GPU's memory that has begun"));
  }
  const auto narrow = std::make_shared<NarrowOffsets>();
  if (gpu == nullptr) {
    auto lookups = Read<TableLookup>(given, *narrow);
    if (!lookups.ok()) return end(lookups.status());
    for (std::size_t i = 0; i < given.size(); ++i)
      (*lookups)[i].out = {given[i].values, given[i].values_count};
    const auto done = [end, narrow](Status status) {
      end(status.ok() ? Outcome(slotwise_call::Answer{}) : Outcome(std::move(status)));
    };
    return client.LookupAsync(*lookups, *checked, done, call);
  }
  const auto lookups = Read<GpuLookup>(given, *narrow);
  if (!lookups.ok()) return end(lookups.status());
  const auto done = [end](Result<std::vector<GpuRows>> rows) {
    if (!rows.ok()) return end(rows.status());
    slotwise_call::Answer answer;
    answer.gpu_rows = std::move(*rows);
    end(std::move(answer));
  };
  client.LookupOnGpuAsync(*lookups, *checked, GpuOf(*gpu), done, call, push);
}

// Returns the push that lookups by the same GPU can come behind; null if it is of the host's memory.
std::shared_ptr<GpuPushUnderWay> Push(Client& client, std::span<const slotwise_batch> given,
                                      const slotwise_step* step, const slotwise_gpu* gpu,
                                      const CallOptions& call, const End& end) {
  const auto narrow = std::make_shared<NarrowOffsets>();
  const auto done = [end, narrow](const Result<std::vector<std::uint64_t>>& steps) {
    end(steps.ok() ? Outcome(slotwise_call::Answer{.numbers = *steps}) : Outcome(steps.status()));
  };
  if (gpu == nullptr) {
    auto pushes = Read<TablePush>(given, *narrow);
    if (!pushes.ok()) {
      done(pushes.status());
      return nullptr;
    }
    for (std::size_t i = 0; i < given.size(); ++i)
      (*pushes)[i].gradients = {given[i].values, given[i].values_count};
    client.PushAsync(*pushes, StepOf(step), done, call);
    return nullptr;
  }
  auto pushes = Read<GpuPush>(given, *narrow);
  if (!pushes.ok()) {
    done(pushes.status());
    return nullptr;
  }
  for (std::size_t i = 0; i < given.size(); ++i) (*pushes)[i].gradients = given[i].values;
  return client.PushOnGpuAsync(*pushes, StepOf(step), GpuOf(*gpu), done, call);
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
        options.looked_up.push_back(
            {.generation = looked_up[i].generation, .table_step = looked_up[i].table_step});
      }
      for (std::size_t i = 0; learning_rates != nullptr && i < count; ++i) {
        const float rate = learning_rates[i];  // NaN: the table's own rate
        options.learning_rates.push_back(std::isnan(rate) ? std::nullopt : std::optional(rate));
      }
      under_way = slotwise::c::Push(client->client, {batches, count}, step, gpu, options, end);
    };
    return slotwise_call::Start(call, begin, slotwise::c::EndsSoon(gpu), &under_way);
  });
}

void slotwise_client_looked_up(slotwise_client* client, const char* table, slotwise_looked_up* state) {
  const slotwise::LookedUpState of = client->client.LookedUp(slotwise::c::Text(table));
  *state = {.generation = of.generation, .table_step = of.table_step};
}
