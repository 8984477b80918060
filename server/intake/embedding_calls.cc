#include "server/intake/embedding_calls.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "server/intake/rare_log.h"

namespace slotwise {
namespace {

// Says in the log who sent a step that cannot be told from another of its name: with another body, with other
// tables, or one that may have been applied before. Retries never do that, so a client is wrong, or two take
// each other's names.
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

  // A request is refused for its own reason, or for one that has no place in the call (kNoPlace).
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
    // Once the answer is taken, nobody changes the answers and the refusal.
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
  std::size_t place_ = kNoPlace;  // of what is refused
  Status why_;
  AnswerCall answer_;
};

// Refuses pushes of which two are the same part of the same step and have different bodies: whichever was
// taken in first would be applied, and the answer would say that it was not. And a step that has one table at
// two places.
Status CheckNames(const std::vector<PushRequest>& pushes) {
  using Name = std::tuple<StepKey, std::uint32_t, std::uint32_t>;  // and its place and part
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
}  // namespace

void SubmitLookups(Engine& engine, const Caller& caller, std::vector<CheckedLookup> lookups, bool many,
                   AnswerCall answer) {
  if (lookups.empty()) return answer(EmbeddingAnswers());
  const auto together =
      std::make_shared<JointAnswer>(engine, caller, lookups.size(), false, many, std::move(answer));
  std::vector<Request> requests;
  requests.reserve(lookups.size());
  std::uint64_t samples = 0, keys = 0;
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    LookupRequest request = std::move(lookups[i].request);
    samples += request.batch.samples;
    keys += request.batch.keys.size();
    request.caller = caller;
    request.joined = many;
    request.done = [&engine, together, i, samples = request.batch.samples, width = lookups[i].width,
                    acknowledged = lookups[i].acknowledged](Result<PooledValues> values) {
      if (!values.ok()) return together->EndRefused(i, values.status());
      const std::uint64_t lost_from = engine.LostFrom(values->version.lineage, acknowledged);
      together->End(i, LookupAnswer{samples, width, std::move(*values), lost_from});
    };
    request.refused_with_others = [together](const Status& why) {
      together->EndRefused(JointAnswer::kNoPlace, why);
    };
    requests.emplace_back(std::move(request));
  }
  caller.times().NoteSubmitted(samples, keys);
  engine.Submit(std::move(requests));
}

void SubmitPushes(Engine& engine, const Caller& caller, std::vector<PushRequest> pushes, bool many,
                  AnswerCall answer) {
  if (pushes.empty()) return answer(EmbeddingAnswers());
  if (const Status names = CheckNames(pushes); !names.ok()) return answer(names);
  const auto together =
      std::make_shared<JointAnswer>(engine, caller, pushes.size(), true, many, std::move(answer));
  std::vector<Request> requests;
  requests.reserve(pushes.size());
  std::uint64_t samples = 0, keys = 0;
  for (std::size_t i = 0; i < pushes.size(); ++i) {
    PushRequest request = std::move(pushes[i]);
    samples += request.batch.samples;
    keys += request.batch.keys.size();
    request.caller = caller;
    request.done = [&engine, together, i, caller,
                    acknowledged = request.acknowledged](const Result<AppliedStep>& applied) {
      if (!applied.ok()) {
        LogIfWrongName(applied.status(), caller);
        return together->EndRefused(i, applied.status());
      }
      together->End(i, PushAnswer{*applied, engine.LostFrom(applied->now.lineage, acknowledged)});
    };
    request.refused_with_others = [together](const Status& why) {
      together->EndRefused(JointAnswer::kNoPlace, why);
    };
    requests.emplace_back(std::move(request));
  }
  caller.times().NoteSubmitted(samples, keys);
  engine.Submit(std::move(requests));
}

}  // namespace slotwise
