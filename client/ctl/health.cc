#include "client/ctl/health.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include <thread>
#include <vector>

#include "wire/access.h"

namespace slotwise::ctl {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetween{100};

// Returns the status in a HealthCheckResponse {ServingStatus status = 1}: a tag and one byte, or nothing for
// UNKNOWN. Neither Debian nor Ubuntu ships the message's generated code.
std::string StatusIn(const grpc::ByteBuffer& reply) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (reply.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices)
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  if (bytes == "\x08\x01") return "SERVING";
  return bytes == "\x08\x02" ? "NOT_SERVING" : "UNKNOWN";
}

grpc::Status Ask(grpc::GenericStub& stub, steady_clock::duration timeout, bool wait, std::string& answer) {
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  context.set_wait_for_ready(wait);
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer reply;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (status.ok()) answer = StatusIn(reply);
  return status;
}

}  // namespace

Result<std::string> Health(const std::string& address, const Credentials& credentials,
                           std::chrono::milliseconds timeout, bool wait) {
  // The health service takes every caller, so the token is not sent.
  Credentials without_token = credentials;
  without_token.token_file.clear();
  const auto access = Access::Make(without_token);
  if (!access.ok()) return access.status();
  grpc::ChannelArguments arguments;
  (*access)->SetArguments(arguments);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  grpc::GenericStub stub(grpc::CreateCustomChannel(address, (*access)->channel(), arguments));
  const auto deadline = steady_clock::now() + timeout;
  for (;;) {
    std::string answer;
    const grpc::Status status = Ask(stub, deadline - steady_clock::now(), wait, answer);
    const bool again = wait && steady_clock::now() + kBetween < deadline;
    if (!again || answer == "SERVING") {
      if (status.ok()) return answer;
      return Unavailable("no answer from " + address + ": " + status.error_message());
    }
    std::this_thread::sleep_for(kBetween);
  }
}

}  // namespace slotwise::ctl
