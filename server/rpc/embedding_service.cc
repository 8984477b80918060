#include "server/rpc/embedding_service.h"

#include <grpcpp/support/slice.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "server/intake/check.h"
#include "server/rpc/call.h"
#include "server/rpc/take_request.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/hand_over.h"
#include "wire/nested.h"
#include "wire/wire_writer.h"

namespace slotwise {

namespace {

// Returns the reply's small fields, then the tag and the length of `values`; the bytes of `values` follow.
std::string HeaderOf(const LookupAnswer& answer, std::uint64_t instance) {
  std::string header = MessageOf(answer, instance).SerializeAsString();
  AppendArrayHeader(v1::LookupReply::kValuesFieldNumber, answer.values.bytes(), header);
  return header;
}

// Returns a slice of the values' own memory. The slice's last reference frees the values.
grpc::Slice Share(PooledValues values) {
  auto owner = std::make_unique<std::shared_ptr<const void>>(std::move(values.values));
  void* memory = const_cast<void*>(owner->get());  // gRPC only reads it
  const auto release = [](void* held) {
    TakeOver(held);
    delete static_cast<std::shared_ptr<const void>*>(held);
  };
  HandOver(owner.get());
  return {memory, values.bytes(), release, owner.release()};
}

// The replies have the same field number in LookupManyReply and PushManyReply.
constexpr int kReplies = 1;
static_assert(int{v1::LookupManyReply::kRepliesFieldNumber} == kReplies &&
              int{v1::PushManyReply::kRepliesFieldNumber} == kReplies);

grpc::ByteBuffer Encode(EmbeddingAnswers::value_type& answer, std::uint64_t instance) {
  if (const auto* const push = std::get_if<PushAnswer>(&answer)) return EncodePushReply(*push, instance);
  return EncodeLookupReply(std::move(std::get<LookupAnswer>(answer)), instance);
}

AnswerCall AnswerTo(std::shared_ptr<Call> call, grpc::ByteBuffer* reply, bool many, std::uint64_t instance) {
  return [call = std::move(call), reply, many, instance](Result<EmbeddingAnswers> answers) {
    if (!answers.ok()) return call->Fail(answers.status());
    call->Succeed([&] {
      std::vector<grpc::ByteBuffer> replies;
      replies.reserve(answers->size());
      for (auto& answer : *answers) replies.push_back(Encode(answer, instance));
      (many ? JoinMessages(kReplies, replies) : replies.front()).Swap(reply);
      call->caller().times().NoteBytesOut(reply->Length());
    });
  };
}

// A method whose request is one message, or holds many in a repeated field.
struct Method {
  CallKind kind;
  int field = 0;  // 0: the request is the one message
  std::string_view name = {};
  std::string_view type = {};

  bool many() const { return field != 0; }
};
constexpr Method kLookup{CallKind::kLookup};
constexpr Method kPush{CallKind::kPush};
constexpr Method kLookupMany{CallKind::kLookup, v1::LookupManyRequest::kLookupsFieldNumber, kLookups,
                             "slotwise.v1.LookupManyRequest"};
constexpr Method kPushMany{CallKind::kPush, v1::PushManyRequest::kPushesFieldNumber, kPushes,
                           "slotwise.v1.PushManyRequest"};

// Decodes all of a call's messages before any is submitted. The request queue takes all of them or none. If
// it took only some, their step could wait for parts that the client sends again only after this call's
// answer.
template <class Decode>
auto DecodeAll(const grpc::ByteBuffer& request, const Method& method, const Decode& decode)
    -> Result<std::vector<std::decay_t<decltype(*decode(request))>>> {
  std::vector<std::decay_t<decltype(*decode(request))>> all;
  if (!method.many()) {
    auto decoded = decode(request);
    if (!decoded.ok()) return decoded.status();
    all.push_back(std::move(*decoded));
    return all;
  }
  const auto messages = SplitMessages(request, method.field, method.type);
  if (!messages.ok()) return messages.status();
  for (const grpc::ByteBuffer& message : *messages) {
    auto decoded = decode(message);
    if (!decoded.ok()) return WithPlace(method.name, all.size(), decoded.status());
    all.push_back(std::move(*decoded));
  }
  return all;
}

// Serves a call of one of the methods: begins it, decodes its messages, and submits them.
template <class Decode, class Submit>
grpc::ServerUnaryReactor* Serve(std::shared_ptr<Call> call, const Method& method, Engine& engine,
                                const grpc::ByteBuffer* request, grpc::ByteBuffer* reply,
                                const Decode& decode, const Submit& submit) {
  grpc::ServerUnaryReactor* const reactor = call.get();
  call->caller().times().NoteBytesIn(request->Length());
  if (call->answered()) return reactor;
  const Caller caller = call->caller();
  const FindTable find_table = TablesFor(engine, caller);
  auto messages = DecodeAll(TakeRequest(request), method, [&](const grpc::ByteBuffer& message) {
    return decode(message, find_table, &engine.arrays());
  });
  const AnswerCall answer = AnswerTo(std::move(call), reply, method.many(), engine.instance());
  messages.ok() ? submit(engine, caller, std::move(*messages), method.many(), answer)
                : answer(messages.status());
  return reactor;
}

}  // namespace

grpc::ByteBuffer EncodeLookupReply(LookupAnswer answer, std::uint64_t instance) {
  const grpc::Slice header(HeaderOf(answer, instance));
  if (answer.values.size == 0) return {&header, 1};
  const std::array slices{header, Share(std::move(answer.values))};
  return {slices.data(), slices.size()};
}

grpc::ByteBuffer EncodePushReply(const PushAnswer& answer, std::uint64_t instance) {
  const grpc::Slice bytes(MessageOf(answer, instance).SerializeAsString());
  return {&bytes, 1};
}

EmbeddingService::EmbeddingService(Engine& engine, WatchedGate& gate,
                                   std::chrono::milliseconds default_deadline)
    : engine_(engine), gate_(gate), default_deadline_(default_deadline) {}

grpc::ServerUnaryReactor* EmbeddingService::Lookup(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  return Serve(Begin(*context, kLookup.kind), kLookup, engine_, request, reply, DecodeLookup, SubmitLookups);
}

grpc::ServerUnaryReactor* EmbeddingService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  return Serve(Begin(*context, kPush.kind), kPush, engine_, request, reply, DecodePush, SubmitPushes);
}

grpc::ServerUnaryReactor* EmbeddingService::LookupMany(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* reply) {
  return Serve(Begin(*context, kLookupMany.kind), kLookupMany, engine_, request, reply, DecodeLookup,
               SubmitLookups);
}

grpc::ServerUnaryReactor* EmbeddingService::PushMany(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* reply) {
  return Serve(Begin(*context, kPushMany.kind), kPushMany, engine_, request, reply, DecodePush, SubmitPushes);
}

}  // namespace slotwise
