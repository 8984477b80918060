// Implements connecting and closing.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/c/call.h"

namespace slotwise::c {
namespace {

Credentials CredentialsOf(const slotwise_credentials* given) {
  if (given == nullptr) return Credentials::FromEnvironment();
  return {.token_file = Text(given->token_file),
          .ca_file = Text(given->ca_file),
          .certificate_file = Text(given->certificate_file),
          .key_file = Text(given->key_file),
          .server_name = Text(given->server_name),
          .insecure = given->insecure != 0};
}

Result<ClientOptions> OptionsOf(const slotwise_client_options& given) {
  if (given.timeout_ms < 0 || given.channels_per_rank < 0 || given.threads < 0) {
    return InvalidArgument("timeout_ms, channels_per_rank and threads must not be below 0");
  }
  if (given.data_type < SLOTWISE_FLOAT32 || given.data_type > SLOTWISE_BFLOAT16) {
    return InvalidArgument("data_type is " + std::to_string(given.data_type) + ", which is no type");
  }
  ClientOptions options;
  if (given.timeout_ms > 0) options.timeout = std::chrono::milliseconds(given.timeout_ms);
  if (given.channels_per_rank > 0) options.channels_per_rank = given.channels_per_rank;
  // With large batches on its connections, each thread keeps a processor busy.
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  options.threads = given.threads > 0 ? given.threads
                                      : std::clamp(processors / 2, 2, std::max(options.channels_per_rank, 2));
  constexpr std::array kTransportKinds{TransportKind::kBest, TransportKind::kGrpc, TransportKind::kTcp,
                                       TransportKind::kShm, TransportKind::kGpu};
  if (given.transport < 0 || static_cast<std::size_t>(given.transport) >= kTransportKinds.size()) {
    return InvalidArgument("transport is " + std::to_string(given.transport) + ", which is none");
  }
  options.transport = kTransportKinds[static_cast<std::size_t>(given.transport)];
  options.data_type = static_cast<DataType>(given.data_type);
  options.credentials = CredentialsOf(given.credentials);
  if (given.log != nullptr) {
    options.log = [log = given.log, user = given.log_user](std::string_view line) {
      log(user, std::string(line).c_str());
    };
  }
  return options;
}

}  // namespace
}  // namespace slotwise::c

using slotwise::c::OrNull;

std::int32_t slotwise_abi() { return SLOTWISE_ABI; }
const char* slotwise_version() { return SLOTWISE_VERSION; }

slotwise_call* slotwise_connect(const char* const* addresses, std::size_t count,
                                const slotwise_client_options* options, const slotwise_call_options* call) {
  return OrNull([&] {
    std::vector<std::string> seeds;
    for (std::size_t i = 0; i < count; ++i) seeds.push_back(slotwise::c::Text(addresses[i]));
    auto checked = slotwise::c::OptionsOf(options == nullptr ? slotwise_client_options{} : *options);
    return slotwise_call::StartThread(
        call, [seeds, checked](const slotwise::CallOptions& now) -> slotwise_call::Outcome {
          if (!checked.ok()) return checked.status();
          auto connected = slotwise::Client::Connect(seeds, *checked, now.stop);
          if (!connected.ok()) return connected.status();
          slotwise_call::Answer answer;
          answer.client = std::make_unique<slotwise_client>(std::move(*connected));
          return answer;
        });
  });
}

void slotwise_client_close(slotwise_client* client) { client->client.Close(); }
std::uint64_t slotwise_client_epoch(slotwise_client* client) { return client->client.session().epoch(); }
std::uint64_t slotwise_client_session(slotwise_client* client) { return client->client.session().id(); }
void slotwise_client_next_step(slotwise_client* client, slotwise_step* step) {
  const slotwise::Step next = client->client.session().Next();
  *step = {next.session, next.number, next.trainer, next.trainers, next.parts, next.epoch};
}
void slotwise_client_free(slotwise_client* client) { delete client; }
