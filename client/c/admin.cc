// The control path: every call does its work in a thread of its own, because it is rare and waits.
#include <string>
#include <utility>
#include <vector>

#include "client/c/handles.h"
#include "client/c/json.h"

namespace slotwise::c {
namespace {

// Starts a call whose answer is the JSON of what `ask` returns, a Result.
template <class Ask>
slotwise_call* Start(const slotwise_call_options* options, Ask ask) {
  return OrNull([&] {
    return slotwise_call::StartThread(
        options, [ask = std::move(ask)](const CallOptions& call) -> slotwise_call::Outcome {
          const auto answer = ask(call);
          if (!answer.ok()) return answer.status();
          return slotwise_call::Answer{.json = ToJson(*answer)};
        });
  });
}

// The same for what is done without an answer.
template <class Do>
slotwise_call* StartToDo(const slotwise_call_options* options, Do todo) {
  return OrNull([&] {
    return slotwise_call::StartThread(
        options, [todo = std::move(todo)](const CallOptions& call) -> slotwise_call::Outcome {
          Status status = todo(call);
          if (!status.ok()) return status;
          return slotwise_call::Answer{};
        });
  });
}

}  // namespace
}  // namespace slotwise::c

using slotwise::CallOptions;
using slotwise::c::Text;

slotwise_call* slotwise_create_table(slotwise_client* client, const char* options,
                                     const slotwise_call_options* call) {
  using Answer = slotwise::Result<slotwise::TableCreation>;
  return slotwise::c::Start(call, [client, json = Text(options)](const CallOptions& now) -> Answer {
    const auto parsed = slotwise::c::TableOptionsFromJson(json);
    if (!parsed.ok()) return parsed.status();
    return client->client.CreateTable(*parsed, now);
  });
}

slotwise_call* slotwise_drop_table(slotwise_client* client, const char* table,
                                   const slotwise_call_options* call) {
  return slotwise::c::StartToDo(call, [client, name = Text(table)](const CallOptions& now) {
    return client->client.DropTable(name, now);
  });
}

slotwise_call* slotwise_list_tables(slotwise_client* client, const slotwise_call_options* call) {
  return slotwise::c::Start(call,
                            [client](const CallOptions& now) { return client->client.ListTables(now); });
}

slotwise_call* slotwise_describe_table(slotwise_client* client, const char* table,
                                       const slotwise_call_options* call) {
  return slotwise::c::Start(call, [client, name = Text(table)](const CallOptions& now) {
    return client->client.DescribeTable(name, now);
  });
}

slotwise_call* slotwise_digest(slotwise_client* client, const char* table,
                               const slotwise_call_options* call) {
  return slotwise::c::Start(call, [client, name = Text(table)](const CallOptions& now) {
    return client->client.Digest(name, now);
  });
}

slotwise_call* slotwise_set_learning_rate(slotwise_client* client, const char* table, float learning_rate,
                                          const slotwise_call_options* call) {
  return slotwise::c::StartToDo(call, [client, name = Text(table), learning_rate](const CallOptions& now) {
    return client->client.SetLearningRate(name, learning_rate, now);
  });
}

slotwise_call* slotwise_topology(slotwise_client* client, const slotwise_call_options* call) {
  return slotwise::c::Start(call, [client](const CallOptions& now) { return client->client.Topology(now); });
}

slotwise_call* slotwise_stats(slotwise_client* client, const slotwise_call_options* call) {
  return slotwise::c::Start(call, [client](const CallOptions& now) { return client->client.Stats(now); });
}

slotwise_call* slotwise_describe_session(slotwise_client* client, uint64_t session, uint64_t epoch,
                                         const slotwise_call_options* call) {
  return slotwise::c::Start(
      call, [=](const CallOptions& now) { return client->client.DescribeSession(session, epoch, now); });
}

slotwise_call* slotwise_save_checkpoint(slotwise_client* client, int32_t delta, int32_t value_type,
                                        const slotwise_call_options* call) {
  using Answer = slotwise::Result<slotwise::CheckpointCreation>;
  return slotwise::c::Start(call, [=](const CallOptions& now) -> Answer {
    if (value_type < SLOTWISE_FLOAT32 || value_type > SLOTWISE_BFLOAT16) {
      return slotwise::InvalidArgument("value_type is " + std::to_string(value_type) + ", which is no type");
    }
    return client->client.SaveCheckpoint(delta != 0, static_cast<slotwise::DataType>(value_type), now);
  });
}

slotwise_call* slotwise_list_checkpoints(slotwise_client* client, const slotwise_call_options* call) {
  return slotwise::c::Start(call,
                            [client](const CallOptions& now) { return client->client.ListCheckpoints(now); });
}

slotwise_call* slotwise_describe_checkpoint(slotwise_client* client, const char* id,
                                            const slotwise_call_options* call) {
  return slotwise::c::Start(call, [client, name = Text(id)](const CallOptions& now) {
    return client->client.DescribeCheckpoint(name, now);
  });
}

slotwise_call* slotwise_verify_checkpoint(slotwise_client* client, const char* id,
                                          const slotwise_call_options* call) {
  return slotwise::c::Start(call, [client, name = Text(id)](const CallOptions& now) {
    return client->client.VerifyCheckpoint(name, now);
  });
}

slotwise_call* slotwise_load_checkpoint(slotwise_client* client, const char* id, const char* const* tables,
                                        size_t count, const slotwise_call_options* call) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(Text(tables[i]));
  return slotwise::c::Start(call,
                            [client, name = Text(id), names = std::move(names)](const CallOptions& now) {
                              return client->client.LoadCheckpoint(name, names, now);
                            });
}

slotwise_call* slotwise_pin_checkpoint(slotwise_client* client, const char* id,
                                       const slotwise_call_options* call) {
  return slotwise::c::StartToDo(call, [client, name = Text(id)](const CallOptions& now) {
    return client->client.PinCheckpoint(name, now);
  });
}

slotwise_call* slotwise_release_checkpoint(slotwise_client* client, const char* id,
                                           const slotwise_call_options* call) {
  return slotwise::c::StartToDo(call, [client, name = Text(id)](const CallOptions& now) {
    return client->client.ReleaseCheckpoint(name, now);
  });
}

slotwise_call* slotwise_compact_checkpoint(slotwise_client* client, const char* id,
                                           const slotwise_call_options* call) {
  return slotwise::c::Start(call, [client, name = Text(id)](const CallOptions& now) {
    return client->client.CompactCheckpoint(name, now);
  });
}
