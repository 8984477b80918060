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

slotwise_call* Lookup(slotwise_client* client, std::span<const slotwise_batch> given, bool many,
                      std::int32_t mode_number, const slotwise_call_options* options) {
  return slotwise_call::Start(options, [&](const CallOptions& call, const End& end) {
    const auto mode = ModeOf(mode_number);
    if (!mode.ok()) return end(mode.status());
    const auto read = Read(given);
    if (!read.ok()) return end(read.status());
    const Batches& batches = **read;
    const auto done = [end, keep = *read](Status status) {
      end(status.ok() ? Outcome(slotwise_call::Answer{}) : Outcome(std::move(status)));
    };
    if (!many) {
      return client->client.LookupAsync(batches.tables[0], batches.views[0], *mode, batches.values[0], done,
                                        call);
    }
    std::vector<TableLookup> lookups;
    for (std::size_t i = 0; i < given.size(); ++i) {
      lookups.push_back({batches.tables[i], batches.views[i], batches.values[i]});
    }
    client->client.LookupManyAsync(lookups, *mode, done, call);
  });
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

slotwise_call* PushFromHost(slotwise_client* client, std::span<const slotwise_batch> given, bool many,
                            const PushNotes& notes, const slotwise_step* step,
                            const slotwise_call_options* options) {
  return slotwise_call::Start(options, [&](CallOptions call, const End& end) {
    notes.AddTo(call, given.size());
    const auto read = Read(given);
    if (!read.ok()) return end(read.status());
    const Batches& batches = **read;
    const std::optional<Step> named = StepOf(step);
    const auto done = [end, keep = *read](const Result<std::vector<std::uint64_t>>& steps) {
      end(steps.ok() ? Outcome(slotwise_call::Answer{.numbers = *steps}) : Outcome(steps.status()));
    };
    if (!many) {
      const auto done_one = [done](const Result<std::uint64_t>& table_step) {
        if (!table_step.ok()) return done(table_step.status());
        done(std::vector{*table_step});
      };
      return client->client.PushAsync(batches.tables[0], batches.views[0], batches.values[0], named, done_one,
                                      call);
    }
    std::vector<TablePush> pushes;
    for (std::size_t i = 0; i < given.size(); ++i) {
      pushes.push_back({batches.tables[i], batches.views[i], batches.values[i]});
    }
    client->client.PushManyAsync(pushes, named, done, call);
  });
}

}  // namespace slotwise::c

using slotwise::c::OrNull;

slotwise_call* slotwise_lookup(slotwise_client* client, const slotwise_batch* batch, std::int32_t mode,
                               const slotwise_call_options* call) {
  return OrNull([&] { return slotwise::c::Lookup(client, {batch, 1}, false, mode, call); });
}

slotwise_call* slotwise_lookup_many(slotwise_client* client, const slotwise_batch* batches, std::size_t count,
                                    std::int32_t mode, const slotwise_call_options* call) {
  return OrNull([&] { return slotwise::c::Lookup(client, {batches, count}, true, mode, call); });
}

slotwise_call* slotwise_push(slotwise_client* client, const slotwise_batch* batch, const slotwise_step* step,
                             const slotwise_call_options* call) {
  return OrNull([&] { return slotwise::c::PushFromHost(client, {batch, 1}, false, {}, step, call); });
}

slotwise_call* slotwise_push_many(slotwise_client* client, const slotwise_batch* batches, std::size_t count,
                                  const slotwise_step* step, const slotwise_call_options* call) {
  return OrNull([&] { return slotwise::c::PushFromHost(client, {batches, count}, true, {}, step, call); });
}

void slotwise_client_looked_up(slotwise_client* client, const char* table, slotwise_looked_up* state) {
  const slotwise::LookedUpState of = client->client.LookedUp(slotwise::c::Text(table));
  *state = {.lineage = of.lineage, .table_step = of.table_step};
}

slotwise_call* slotwise_push_of(slotwise_client* client, const slotwise_batch* batches, std::size_t count,
                                const slotwise_looked_up* looked_up, const float* learning_rates,
                                const slotwise_step* step, const slotwise_gpu* gpu,
                                const slotwise_call_options* call) {
  return OrNull([&] {
    const std::span given(batches, count);
    const slotwise::c::PushNotes notes{looked_up, learning_rates};
    return gpu == nullptr ? slotwise::c::PushFromHost(client, given, count != 1, notes, step, call)
                          : slotwise::c::PushFromGpu(client, given, notes, step, gpu, call);
  });
}
