// The referee's calls: requests that are answered together or not at all.
#include <algorithm>
#include <string>

#include "tests/sim/referee.h"

namespace slotwise::sim {

// How the request ended is known once it is decided.
void Referee::Unhear(Sent& sent) {
  sent.unheard = true;
  if (!sent.accepted || sent.answers > 0 || !(sent.expected || sent.abandoned)) return;
  sent.answers = 1;
  --open_;
}

void Referee::OnCallAnswer(std::span<Sent* const> call, std::span<const std::optional<Status>> refused,
                           const Status& status, std::span<const Reply> replies, bool reads_values) {
  bool first = true;  // that is refused
  bool has_reason = status.ok();
  for (std::size_t i = 0; i < call.size(); ++i) {
    Sent& sent = *call[i];
    sent.reads_values = reads_values;
    if (status.ok()) {
      if (refused[i]) return Fail(sent.Describe() + " was refused, and is answered");
      OnAnswer(sent, replies[i]);
      continue;
    }
    const bool lookup = sent.ask.operation == LookupRequest::kOperation;
    if (lookup && !refused[i] && !sent.expected)
      return Fail(sent.Describe() + " is answered before it was decided: " + status.message());
    if (!refused[i] && !sent.expected) continue;
    const StatusCode code = refused[i] ? refused[i]->code() : sent.expected->code;
    if (code == StatusCode::kOk) continue;
    // Of lookups the first refusal counts; of pushes one that would be refused again is the answer at once.
    if (first || !lookup) has_reason = has_reason || code == status.code();
    first = false;
  }
  if (!has_reason && !call.empty()) {
    return Fail("the call of " + call[0]->Describe() + " ends with " + std::string(ToString(status.code())) +
                ", as none of its requests does: " + status.message());
  }
  for (Sent* sent : call) {
    if (!sent->accepted) sent->answers = 1;
    if (!status.ok()) Unhear(*sent);
    if (sent->held) OnLetGo(*sent);
    sent->held = false;
  }
}

void Referee::OnCallLost(std::span<Sent* const> call) {
  for (Sent* sent : call) {
    const StepId& step = sent->ask.step;
    const bool others_wait =
        sent->ask.operation == PushRequest::kOperation && (step.parts > 1 || step.tables > 1);
    sent->abandoned = sent->accepted && sent->ticket == 0 && !others_wait;
    if (!sent->accepted) sent->answers = 1;
    Unhear(*sent);
  }
}

void Referee::OnCallGone(std::span<Sent* const> call) {
  for (Sent* sent : call) {
    if (sent->held) OnLetGo(*sent);
    sent->held = false;
    sent->let_go = sent->let_go || sent->abandoned;
  }
}

}  // namespace slotwise::sim
