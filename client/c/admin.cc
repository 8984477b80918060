// Implements control calls. Each does its work in a thread of its own, because such calls are rare and slow.
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "client/c/call.h"

using slotwise::c::Text;

slotwise_call* slotwise_ask(slotwise_client* client, const char* method, const char* request,
                            std::int32_t rank, const slotwise_call_options* call) {
  return slotwise::c::OrNull([&] {
    const auto only = rank < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(rank));
    return slotwise_call::StartThread(call,
                                      [client, name = Text(method), json = Text(request),
                                       only](const slotwise::CallOptions& now) -> slotwise_call::Outcome {
                                        auto reply = client->client.Ask(name, json, now, only);
                                        if (!reply.ok()) return reply.status();
                                        return slotwise_call::Answer{.json = std::move(*reply)};
                                      });
  });
}

std::int32_t slotwise_client_table(slotwise_client* client, const char* table, slotwise_table* known) {
  try {
    const auto options = client->client.KnownTable(Text(table));
    if (!options) return 0;
    *known = {.dim = options->dim,
              .slots = options->slots,
              .pools = options->combiner == slotwise::Combiner::kNone ? 0 : 1};
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

void slotwise_client_forget_table(slotwise_client* client, const char* table) {
  client->client.ForgetTable(table == nullptr ? std::string_view() : std::string_view(table));
}
