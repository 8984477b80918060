// Implements calls about rows by key.
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "client/c/call.h"

struct slotwise_rows {
  slotwise::Result<slotwise::RowStream> stream;
  slotwise::Status failure = {};
};

namespace slotwise::c {
namespace {

std::span<const Key> KeysOf(const std::uint64_t* keys, std::size_t count) {
  return {reinterpret_cast<const Key*>(keys), count};
}

slotwise_call::Outcome CountOf(const Result<std::uint64_t>& rows) {
  if (!rows.ok()) return rows.status();
  return slotwise_call::Answer{.numbers = {*rows}};
}

// Returns a view of rows whose sizes match; a stream returns no others.
slotwise_rows_view ViewOf(const RowsView& rows) {
  return {.keys = reinterpret_cast<const std::uint64_t*>(rows.keys.data()),
          .values = rows.values.data(),
          .state = rows.state.data(),
          .rows = rows.keys.size(),
          .dim = rows.values.size() / rows.keys.size(),
          .state_size = rows.state.size() / rows.keys.size()};
}

std::int32_t Next(slotwise_rows& rows, std::int64_t most_ms, slotwise_rows_view& view) {
  view = {};
  if (!rows.failure.ok()) return CodeOf(rows.failure.code());
  for (;;) {
    if (most_ms >= 0 && !rows.stream->Wait(Bounded(most_ms))) return SLOTWISE_RUNNING;
    const auto next = rows.stream->Next();
    if (!next.ok()) {
      rows.failure = next.status();
      return CodeOf(rows.failure.code());
    }
    if (!*next) return SLOTWISE_OK;
    if ((*next)->keys.empty()) continue;  // the message has no rows
    view = ViewOf(**next);
    return SLOTWISE_OK;
  }
}

}  // namespace
}  // namespace slotwise::c

using slotwise::CallOptions;
using slotwise::c::OrNull;

slotwise_call* slotwise_import(slotwise_client* client, const char* table, const slotwise_rows_view* rows,
                               std::uint64_t table_steps, const slotwise_call_options* call) {
  return OrNull([&] {
    const slotwise::RowsView view{.keys = slotwise::c::KeysOf(rows->keys, rows->rows),
                                  .values = {rows->values, rows->rows * rows->dim},
                                  .state = {rows->state, rows->rows * rows->state_size}};
    return slotwise_call::StartThread(
        call, [client, name = slotwise::c::Text(table), view, table_steps](const CallOptions& now) {
          return slotwise::c::CountOf(client->client.Import(name, view, table_steps, now));
        });
  });
}

slotwise_call* slotwise_erase(slotwise_client* client, const char* table, const std::uint64_t* keys,
                              std::size_t count, const slotwise_call_options* call) {
  return OrNull([&] {
    return slotwise_call::StartThread(
        call,
        [client, name = slotwise::c::Text(table), view = slotwise::c::KeysOf(keys, count)](
            const CallOptions& now) { return slotwise::c::CountOf(client->client.Erase(name, view, now)); });
  });
}

slotwise_rows* slotwise_export(slotwise_client* client, const char* table, std::int32_t with_state,
                               const std::uint64_t* keys, std::size_t count,
                               const slotwise_call_options* call) {
  return OrNull([&]() -> slotwise_rows* {
    CallOptions options;
    options.traceparent = slotwise::c::Traceparent();
    if (call != nullptr && call->timeout_ms > 0)
      options.timeout = std::chrono::milliseconds(call->timeout_ms);
    std::optional<std::span<const slotwise::Key>> wanted;
    if (keys != nullptr) wanted = slotwise::c::KeysOf(keys, count);
    auto stream = client->client.Export(slotwise::c::Text(table), with_state != 0, wanted, options);
    slotwise::Status failure = stream.status();
    return new slotwise_rows{std::move(stream), std::move(failure)};
  });
}

std::int32_t slotwise_rows_next(slotwise_rows* rows, std::int64_t most_ms, slotwise_rows_view* view) {
  try {
    return slotwise::c::Next(*rows, most_ms, *view);
  } catch (const std::exception& error) {
    rows->failure = {slotwise::StatusCode::kInternal, error.what()};
    return SLOTWISE_INTERNAL;
  }
}

const char* slotwise_rows_message(const slotwise_rows* rows) { return rows->failure.message().c_str(); }
std::int64_t slotwise_rows_retry_after_ms(const slotwise_rows* rows) {
  return rows->failure.retry_after().count();
}
const char* slotwise_rows_reason(const slotwise_rows* rows) {
  return slotwise::ToString(rows->failure.reason()).data();
}
void slotwise_rows_free(slotwise_rows* rows) { delete rows; }
