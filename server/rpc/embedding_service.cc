#include "server/rpc/embedding_service.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/rpc/call.h"
#include "server/rpc/encode.h"
#include "server/rpc/rare_log.h"
#include "server/rpc/take_request.h"
#include "wire/nested.h"

namespace slotwise {

namespace {

// Receives one request's encoded reply, or the reason why there is none.
using Answer = std::function<void(Result<grpc::ByteBuffer>)>;

Answer AnswerTo(std::shared_ptr<Call> call, grpc::ByteBuffer* reply) {
  return [call = std::move(call), reply](Result<grpc::ByteBuffer> encoded) {
    if (!encoded.ok()) return call->Fail(encoded.status());
    call->Succeed([&] { encoded->Swap(reply); });
  };
}

// Says in the log who sent a step that cannot be told from another of its name: with another body, with other
// tables, or one that may have been applied before. Retries never do that, so a client is wrong, or two take
// each other's names.
void LogIfWrongName(const Status& status, const Caller& caller) {
  static RareLog log(std::chrono::seconds(10));
  if (status.code() != StatusCode::kFailedPrecondition) return;
  if (const auto held_back = log.Pass()) {
    spdlog::warn("refused to {}: {} ({} more since the last such line)", caller.name(), status.message(),
                 *held_back);
  }
}

// Makes the engine's request of a decoded one; the engine's result goes to `answer`.
LookupRequest RequestOf(DecodedLookup decoded, const Engine& engine, const Caller& caller, Answer answer) {
  LookupRequest request = std::move(decoded.request);
  request.caller = caller;
  request.done = [answer = std::move(answer), samples = request.batch.samples, width = decoded.width,
                  incarnation = engine.incarnation()](Result<PooledValues> values) {
    if (!values.ok()) return answer(values.status());
    answer(EncodeLookupReply(samples, width, std::move(*values), incarnation));
  };
  return request;
}

PushRequest RequestOf(PushRequest request, const Engine& engine, const Caller& caller, Answer answer) {
  request.caller = caller;
  request.done = [answer = std::move(answer), caller,
                  incarnation = engine.incarnation()](const Result<AppliedStep>& applied) {
    if (!applied.ok()) {
      LogIfWrongName(applied.status(), caller);
      return answer(applied.status());
    }
    answer(EncodePushReply(*applied, incarnation));
  };
  return request;
}

// The number of the field `replies`, which LookupManyReply and PushManyReply share.
constexpr int kReplies = 1;
static_assert(int{v1::LookupManyReply::kRepliesFieldNumber} == kReplies &&
              int{v1::PushManyReply::kRepliesFieldNumber} == kReplies);

// Answers several requests together, once all have ended. If requests were refused, the first one's refusal
// is the answer. A push may wait for parts that come with no message any more once another push of the call
// is refused: so the first refusal of a push that would be refused again is the answer at once.
// Thread-safety: requests may end on any thread.
class JointAnswer {
 public:
  JointAnswer(std::string_view field, std::size_t count, bool pushes, Answer answer)
      : field_(field), pushes_(pushes), replies_(count), waiting_(count), answer_(std::move(answer)) {}

  void End(std::size_t index, Result<grpc::ByteBuffer> reply) {
    Answer answer;
    {
      const std::lock_guard lock(mutex_);
      --waiting_;
      if (answer_ == nullptr) return;
      const bool ends_the_call = pushes_ && IsRefusedForGood(reply.status());
      if (reply.ok()) {
        replies_[index].Swap(&*reply);
      } else if (index < refused_ || ends_the_call) {
        refused_ = index;
        why_ = reply.status();
      }
      if (waiting_ > 0 && !ends_the_call) return;
      answer = std::exchange(answer_, nullptr);
    }
    // Once the answer is taken, nobody changes the replies and the refusal.
    if (!why_.ok()) return answer(WithPlace(field_, refused_, why_));
    answer(JoinMessages(kReplies, replies_));
  }

  // Returns `why` with the request's place in the message.
  static Status WithPlace(std::string_view field, std::size_t index, const Status& why) {
    return {why.code(), std::string(field) + "[" + std::to_string(index) + "]: " + why.message()};
  }

 private:
  static bool IsRefusedForGood(const Status& status) {
    return !status.ok() && status.code() != StatusCode::kUnavailable &&
           status.code() != StatusCode::kDeadlineExceeded && status.code() != StatusCode::kCancelled;
  }

  const std::string_view field_;
  const bool pushes_;
  std::mutex mutex_;
  std::vector<grpc::ByteBuffer> replies_;
  std::size_t waiting_;
  std::size_t refused_ = std::numeric_limits<std::size_t>::max();
  Status why_;
  Answer answer_;
};

// Refuses pushes of which two are the same part of the same step and have different bodies: whichever was
// taken in first would be applied, and the answer would say that it was not. And a step that has one table at
// two places.
Status CheckNames(std::string_view field, const std::vector<PushRequest>& pushes) {
  using Name = std::tuple<StepKey, std::uint32_t, std::uint32_t>;  // and its place and part
  std::map<Name, std::size_t> first;
  std::map<std::pair<StepKey, TableId>, std::uint32_t> places;
  for (std::size_t i = 0; i < pushes.size(); ++i) {
    const PushRequest& push = pushes[i];
    const StepId& step = push.step;
    const std::uint32_t place =
        places.try_emplace({KeyOf(push.table, step), push.table}, step.place).first->second;
    if (place != step.place) {
      return JointAnswer::WithPlace(field, i,
                                    InvalidArgument("the table has place " + std::to_string(step.place) +
                                                    " of its step here, and place " + std::to_string(place) +
                                                    " in a part before: it can have one"));
    }
    const auto [named, is_new] = first.try_emplace({KeyOf(push.table, step), step.place, step.part}, i);
    if (is_new || pushes[named->second].body == push.body) continue;
    return JointAnswer::WithPlace(
        field, i,
        InvalidArgument("part " + std::to_string(step.part) + " of step " + std::to_string(step.number) +
                        " of session " + std::to_string(step.session) + " is in the message before, as " +
                        std::string(field) + "[" + std::to_string(named->second) +
                        "], with other keys, weights or gradients"));
  }
  return {};
}
Status CheckNames(std::string_view /*field*/, const std::vector<DecodedLookup>& /*lookups*/) { return {}; }

// Decodes all of a request's messages before it submits any. The engine's inbox takes all of them or none. If
// it took only some, a step taken could wait for parts that the client would not send again before it got an
// answer to this request.
template <class Decode>
void SubmitMany(Engine& engine, const Caller& caller, const grpc::ByteBuffer& request, int number,
                std::string_view field, std::string_view type, Decode decode, const Answer& answer) {
  const auto messages = SplitMessages(request, number, type);
  if (!messages.ok()) return answer(messages.status());
  if (messages->empty()) return answer(JoinMessages(kReplies, {}));
  std::vector<std::decay_t<decltype(*decode(request))>> all;
  for (const grpc::ByteBuffer& message : *messages) {
    auto decoded = decode(message);
    if (!decoded.ok()) return answer(JointAnswer::WithPlace(field, all.size(), decoded.status()));
    all.push_back(std::move(*decoded));
  }
  if (const Status status = CheckNames(field, all); !status.ok()) return answer(status);
  constexpr bool kPushes = std::is_same_v<typename decltype(all)::value_type, PushRequest>;
  const auto together = std::make_shared<JointAnswer>(field, all.size(), kPushes, answer);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto one = RequestOf(std::move(all[i]), engine, caller, [together, i](Result<grpc::ByteBuffer> reply) {
      together->End(i, std::move(reply));
    });
    if constexpr (std::is_same_v<decltype(one), LookupRequest>) one.joined = true;
    requests.push_back(std::move(one));
  }
  engine.Submit(std::move(requests));
}

}  // namespace

EmbeddingService::EmbeddingService(Engine& engine, Gate& gate, std::chrono::milliseconds default_deadline)
    : engine_(engine),
      gate_(gate),
      find_table_([&engine](std::string_view name) { return engine.FindTable(name); }),
      default_deadline_(default_deadline) {}

grpc::ServerUnaryReactor* EmbeddingService::Lookup(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  auto decoded = DecodeLookup(TakeRequest(request), find_table_, &engine_.arrays());
  const Caller caller = call->caller();
  const Answer answer = AnswerTo(std::move(call), reply);
  decoded.ok() ? engine_.Submit(RequestOf(std::move(*decoded), engine_, caller, answer))
               : answer(decoded.status());
  return reactor;
}

grpc::ServerUnaryReactor* EmbeddingService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  auto decoded = DecodePush(TakeRequest(request), find_table_, &engine_.arrays());
  const Caller caller = call->caller();
  const Answer answer = AnswerTo(std::move(call), reply);
  decoded.ok() ? engine_.Submit(RequestOf(std::move(*decoded), engine_, caller, answer))
               : answer(decoded.status());
  return reactor;
}

grpc::ServerUnaryReactor* EmbeddingService::LookupMany(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const Caller caller = call->caller();
  SubmitMany(
      engine_, caller, TakeRequest(request), v1::LookupManyRequest::kLookupsFieldNumber, "lookups",
      "slotwise.v1.LookupManyRequest",
      [this](const grpc::ByteBuffer& message) {
        return DecodeLookup(message, find_table_, &engine_.arrays());
      },
      AnswerTo(std::move(call), reply));
  return reactor;
}

grpc::ServerUnaryReactor* EmbeddingService::PushMany(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const Caller caller = call->caller();
  SubmitMany(
      engine_, caller, TakeRequest(request), v1::PushManyRequest::kPushesFieldNumber, "pushes",
      "slotwise.v1.PushManyRequest",
      [this](const grpc::ByteBuffer& message) { return DecodePush(message, find_table_, &engine_.arrays()); },
      AnswerTo(std::move(call), reply));
  return reactor;
}

}  // namespace slotwise
