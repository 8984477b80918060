#include "server/rpc/embedding_service.h"

#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "server/intake/embedding_calls.h"
#include "server/rpc/call.h"
#include "server/rpc/decode.h"
#include "server/rpc/encode.h"
#include "server/rpc/take_request.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/nested.h"

namespace slotwise {

namespace {

// LookupManyReply and PushManyReply have the same field of replies.
constexpr int kReplies = 1;
static_assert(int{v1::LookupManyReply::kRepliesFieldNumber} == kReplies &&
              int{v1::PushManyReply::kRepliesFieldNumber} == kReplies);

grpc::ByteBuffer Encode(EmbeddingAnswers::value_type& answer, std::uint64_t incarnation) {
  if (const auto* const push = std::get_if<PushAnswer>(&answer)) return EncodePushReply(*push, incarnation);
  return EncodeLookupReply(std::move(std::get<LookupAnswer>(answer)), incarnation);
}

AnswerCall AnswerTo(std::shared_ptr<Call> call, grpc::ByteBuffer* reply, bool many,
                    std::uint64_t incarnation) {
  return [call = std::move(call), reply, many, incarnation](Result<EmbeddingAnswers> answers) {
    if (!answers.ok()) return call->Fail(answers.status());
    call->Succeed([&] {
      std::vector<grpc::ByteBuffer> replies;
      replies.reserve(answers->size());
      for (auto& answer : *answers) replies.push_back(Encode(answer, incarnation));
      (many ? JoinMessages(kReplies, replies) : replies.front()).Swap(reply);
      call->caller().times().NoteBytesOut(reply->Length());
    });
  };
}

// Decodes all of a call's messages before any is submitted. The engine's inbox takes all of them or none. If
// it took only some, a step taken could wait for parts that the client would not send again before it got an
// answer to this request.
template <class Decode>
auto DecodeMany(const grpc::ByteBuffer& request, int number, std::string_view field, std::string_view type,
                const Decode& decode) -> Result<std::vector<std::decay_t<decltype(*decode(request))>>> {
  const auto messages = SplitMessages(request, number, type);
  if (!messages.ok()) return messages.status();
  std::vector<std::decay_t<decltype(*decode(request))>> all;
  for (const grpc::ByteBuffer& message : *messages) {
    auto decoded = decode(message);
    if (!decoded.ok()) return WithPlace(field, all.size(), decoded.status());
    all.push_back(std::move(*decoded));
  }
  return all;
}

}  // namespace

EmbeddingService::EmbeddingService(Engine& engine, WatchedGate& gate,
                                   std::chrono::milliseconds default_deadline)
    : engine_(engine), gate_(gate), default_deadline_(default_deadline) {}

std::shared_ptr<Call> EmbeddingService::Begin(grpc::CallbackServerContext& context,
                                              const grpc::ByteBuffer& request, CallKind kind) {
  auto call = Call::Begin(context, gate_, default_deadline_, kind);
  call->caller().times().NoteBytesIn(request.Length());
  return call;
}

grpc::ServerUnaryReactor* EmbeddingService::Lookup(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Begin(*context, *request, CallKind::kLookup);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const Caller caller = call->caller();
  auto decoded = DecodeLookup(TakeRequest(request), TablesFor(engine_, caller), &engine_.arrays());
  const AnswerCall answer = AnswerTo(std::move(call), reply, false, engine_.incarnation());
  if (!decoded.ok()) {
    answer(decoded.status());
    return reactor;
  }
  std::vector<CheckedLookup> lookups;
  lookups.push_back(std::move(*decoded));
  SubmitLookups(engine_, caller, std::move(lookups), false, answer);
  return reactor;
}

grpc::ServerUnaryReactor* EmbeddingService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Begin(*context, *request, CallKind::kPush);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const Caller caller = call->caller();
  auto decoded = DecodePush(TakeRequest(request), TablesFor(engine_, caller), &engine_.arrays());
  const AnswerCall answer = AnswerTo(std::move(call), reply, false, engine_.incarnation());
  if (!decoded.ok()) {
    answer(decoded.status());
    return reactor;
  }
  std::vector<PushRequest> pushes;
  pushes.push_back(std::move(*decoded));
  SubmitPushes(engine_, caller, std::move(pushes), false, answer);
  return reactor;
}

grpc::ServerUnaryReactor* EmbeddingService::LookupMany(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* reply) {
  auto call = Begin(*context, *request, CallKind::kLookup);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const Caller caller = call->caller();
  const FindTable find_table = TablesFor(engine_, caller);
  auto lookups =
      DecodeMany(TakeRequest(request), v1::LookupManyRequest::kLookupsFieldNumber, kLookups,
                 "slotwise.v1.LookupManyRequest", [this, &find_table](const grpc::ByteBuffer& message) {
                   return DecodeLookup(message, find_table, &engine_.arrays());
                 });
  const AnswerCall answer = AnswerTo(std::move(call), reply, true, engine_.incarnation());
  lookups.ok() ? SubmitLookups(engine_, caller, std::move(*lookups), true, answer) : answer(lookups.status());
  return reactor;
}

grpc::ServerUnaryReactor* EmbeddingService::PushMany(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* reply) {
  auto call = Begin(*context, *request, CallKind::kPush);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const Caller caller = call->caller();
  const FindTable find_table = TablesFor(engine_, caller);
  auto pushes =
      DecodeMany(TakeRequest(request), v1::PushManyRequest::kPushesFieldNumber, kPushes,
                 "slotwise.v1.PushManyRequest", [this, &find_table](const grpc::ByteBuffer& message) {
                   return DecodePush(message, find_table, &engine_.arrays());
                 });
  const AnswerCall answer = AnswerTo(std::move(call), reply, true, engine_.incarnation());
  pushes.ok() ? SubmitPushes(engine_, caller, std::move(*pushes), true, answer) : answer(pushes.status());
  return reactor;
}

}  // namespace slotwise
