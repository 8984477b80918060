// Lookups and pushes.
#include <cmath>
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

}  // namespace

void PushNotes::AddTo(CallOptions& call, std::size_t batches) const {
  for (std::size_t i = 0; looked_up != nullptr && i < batches; ++i) {
    call.looked_up.push_back({.lineage = looked_up[i].lineage, .table_step = looked_up[i].table_step});
  }
  for (std::size_t i = 0; learning_rates != nullptr && i < batches; ++i) {
    const float rate = learning_rates[i];
    call.learning_rates.push_back(std::isnan(rate) ? std::nullopt : std::optional(rate));
  }
}

}  // namespace slotwise::c

using slotwise::c::OrNull;

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
