#include "server/intake/embedding_calls.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "server/intake/rare_log.h"
#include "wire/data_type_proto.h"

namespace slotwise {
namespace {

// Logs who sent a step under a name that another step has or may have had: with another body, with other
// tables, or one that may have been applied before. Retries never cause this, so a client has a bug, or two
// clients use the same names.
void LogIfWrongName(const Status& status, const Caller& caller) {
  static RareLog log(std::chrono::seconds(10));
  if (status.code() != StatusCode::kFailedPrecondition) return;
  if (const auto held_back = log.Pass()) {
    spdlog::warn("refused to {}: {} ({} more since the last such line)", caller.label(), status.message(),
                 *held_back);
  }
}

// Answers several requests together, once all have ended or one push is refused for good.
// Thread-safety: requests may end on any thread.
class JointAnswer {
 public:
  JointAnswer(const Engine& engine, Caller caller, std::size_t count, bool pushes, bool many,
              AnswerCall answer)
      : engine_(engine),
        caller_(std::move(caller)),
        pushes_(pushes),
        many_(many),
        answers_(count),
        waiting_(count),
        answer_(std::move(answer)) {}

  void End(std::size_t index, EmbeddingAnswers::value_type one) {
    std::unique_lock lock(mutex_);
    if (answer_ != nullptr) answers_[index] = std::move(one);
    EndOne(false, std::move(lock));
  }

  // A request at `place` is refused, or for a reason that has no place in the call (kNoPlace).
  static constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();
  void EndRefused(std::size_t place, const Status& why) {
    std::unique_lock lock(mutex_);
    const bool ends_the_call = pushes_ && IsRefusedForGood(why);
    if (answer_ != nullptr && (why_.ok() || place < place_ || ends_the_call)) {
      place_ = place;
      why_ = why;
    }
    EndOne(ends_the_call, std::move(lock));
  }

 private:
  void EndOne(bool ends_the_call, std::unique_lock<std::mutex> lock) {
    --waiting_;
    if (answer_ == nullptr || (waiting_ > 0 && !ends_the_call)) return;
    const AnswerCall answer = std::exchange(answer_, nullptr);
    lock.unlock();
    caller_.times().NoteAnswered(engine_.WaitedInCollectives());
    // Once the answer is taken, the answers and the refusal do not change.
    if (why_.ok()) return answer(std::move(answers_));
    const bool has_place = many_ && place_ != kNoPlace;
    answer(has_place ? WithPlace(pushes_ ? kPushes : kLookups, place_, why_) : why_);
  }

  static bool IsRefusedForGood(const Status& status) {
    return !status.ok() && status.retry_after().count() == 0 && status.code() != StatusCode::kUnavailable &&
           status.code() != StatusCode::kDeadlineExceeded && status.code() != StatusCode::kCancelled;
  }

  const Engine& engine_;
  const Caller caller_;
  const bool pushes_;
  const bool many_;
  std::mutex mutex_;
  EmbeddingAnswers answers_;
  std::size_t waiting_;
  std::size_t place_ = kNoPlace;  // of the refused request
  Status why_;
  AnswerCall answer_;
};

// Refuses two pushes that are the same part of the same step with different bodies: the first one taken in
// would be applied, and the answer would deny it. Also refuses a step that has one table at two places.
Status CheckNames(const std::vector<PushRequest>& pushes) {
  using Name = std::tuple<StepKey, std::uint32_t, std::uint32_t>;  // step, place and part
  std::map<Name, std::size_t> first;
  std::map<std::pair<StepKey, TableId>, std::uint32_t> places;
  for (std::size_t i = 0; i < pushes.size(); ++i) {
    const PushRequest& push = pushes[i];
    const StepId& step = push.step;
    const std::uint32_t place =
        places.try_emplace({KeyOf(push.table, step), push.table}, step.place).first->second;
    if (place != step.place) {
      return WithPlace(kPushes, i,
                       InvalidArgument("the table has place " + std::to_string(step.place) +
                                       " of its step here, and place " + std::to_string(place) +
                                       " in a part before: it can have one"));
    }
    const auto [named, is_new] = first.try_emplace({KeyOf(push.table, step), step.place, step.part}, i);
    if (is_new || pushes[named->second].body == push.body) continue;
    return WithPlace(
        kPushes, i,
        InvalidArgument("part " + std::to_string(step.part) + " of step " + std::to_string(step.number) +
                        " of session " + std::to_string(step.session) + " is in the message before, as " +
                        std::string(kPushes) + "[" + std::to_string(named->second) +
                        "], with other keys, weights, gradients or learning rate"));
  }
  return {};
}

// Submits request_of(message, place, together) for each of the call's messages. The request's answer goes to
// `place` of `together`.
template <class Message, class RequestOf>
void SubmitTogether(Engine& engine, const Caller& caller, std::vector<Message> messages, bool many,
                    AnswerCall answer, const RequestOf& request_of) {
  if (messages.empty()) return answer(EmbeddingAnswers());
  constexpr bool kIsPush = std::is_same_v<Message, PushRequest>;
  const auto together =
      std::make_shared<JointAnswer>(engine, caller, messages.size(), kIsPush, many, std::move(answer));
  std::vector<Request> requests;
  requests.reserve(messages.size());
  std::uint64_t samples = 0, keys = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto request = request_of(std::move(messages[i]), i, together);
    samples += request.batch.samples;
    keys += request.batch.keys.size();
    request.caller = caller;
    request.refused_with_others = [together](const Status& why) {
      together->EndRefused(JointAnswer::kNoPlace, why);
    };
    requests.emplace_back(std::move(request));
  }
  caller.times().NoteSubmitted(samples, keys);
  engine.Submit(std::move(requests));
}

}  // namespace

void SubmitLookups(Engine& engine, const Caller& caller, std::vector<CheckedLookup> lookups, bool many,
                   AnswerCall answer) {
  SubmitTogether(
      engine, caller, std::move(lookups), many, std::move(answer),
      [&](CheckedLookup lookup, std::size_t place, const auto& together) {
        LookupRequest request = std::move(lookup.request);
        request.joined = many;
        request.done = [&engine, together, place, samples = request.batch.samples, width = lookup.width,
                        acknowledged = lookup.acknowledged](Result<PooledValues> values) {
          if (!values.ok()) return together->EndRefused(place, values.status());
          const std::uint64_t lost_from = engine.LostFrom(values->version.generation, acknowledged);
          together->End(place, LookupAnswer{samples, width, std::move(*values), lost_from});
        };
        return request;
      });
}

void SubmitPushes(Engine& engine, const Caller& caller, std::vector<PushRequest> pushes, bool many,
                  AnswerCall answer) {
  if (const Status names = CheckNames(pushes); !names.ok()) return answer(names);
  SubmitTogether(
      engine, caller, std::move(pushes), many, std::move(answer),
      [&](PushRequest request, std::size_t place, const auto& together) {
        request.done = [&engine, together, place, caller,
                        acknowledged = request.acknowledged](const Result<AppliedStep>& applied) {
          if (!applied.ok()) {
            LogIfWrongName(applied.status(), caller);
            return together->EndRefused(place, applied.status());
          }
          together->End(place, PushAnswer{*applied, engine.LostFrom(applied->now.generation, acknowledged)});
        };
        return request;
      });
}

v1::LookupReply MessageOf(const LookupAnswer& answer, std::uint64_t instance) {
  v1::LookupReply reply;
  reply.set_samples(answer.samples);
  reply.set_width(answer.width);
  reply.set_data_type(ToProto(answer.values.type));
  reply.set_incarnation(instance);
  reply.set_lineage(answer.values.version.generation);
  reply.set_table_step(answer.values.version.step);
  reply.set_lost_from(answer.lost_from);
  return reply;
}

v1::PushReply MessageOf(const PushAnswer& answer, std::uint64_t instance) {
  v1::PushReply reply;
  reply.set_table_step(answer.applied.table_step);
  reply.set_lineage(answer.applied.now.generation);
  reply.set_newest_step(answer.applied.now.step);
  reply.set_incarnation(instance);
  reply.set_lost_from(answer.lost_from);
  return reply;
}

}  // namespace slotwise
