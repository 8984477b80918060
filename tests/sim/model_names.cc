#include "tests/sim/model_names.h"

#include <algorithm>
#include <utility>

namespace slotwise::sim {
namespace {

constexpr std::uint64_t kNumbersRemembered = 4096;  // docs/semantics.md

}  // namespace

const ModelNames::Session* ModelNames::Find(TableId table, std::uint64_t id) const {
  const auto found =
      std::ranges::find_if(sessions_, [&](const Session& s) { return s.table == table && s.id == id; });
  return found == sessions_.end() ? nullptr : &*found;
}

ModelNames::Verdict ModelNames::Judge(TableId table, const StepId& part, std::uint32_t body,
                                      std::uint64_t* applied) const {
  const Session* const session = Find(part.tables > 1 ? TableId{0} : table, part.session);
  if (session == nullptr) {
    if (forgotten_epoch_ && part.epoch <= *forgotten_epoch_) return Verdict::kForgotten;
    return part.epoch > epoch_ ? Verdict::kAhead : Verdict::kNew;
  }
  if (part.number + kNumbersRemembered <= session->steps.rbegin()->first) return Verdict::kTooOld;
  const auto step = session->steps.find(part.number);
  if (step == session->steps.end()) return part.epoch > epoch_ ? Verdict::kAhead : Verdict::kNew;
  const auto share = step->second.shares.find(part.place);
  if (step->second.shares.size() != part.tables || share == step->second.shares.end() ||
      share->second.table != table) {
    return Verdict::kOtherTables;
  }
  *applied = share->second.table_step;
  const auto& bodies = share->second.bodies;
  return bodies.size() == part.parts && bodies.at(part.part) != body ? Verdict::kOtherBody
                                                                     : Verdict::kApplied;
}

void ModelNames::Record(const StepId& step, const Applied& applied) {
  const TableId table = step.tables > 1 ? TableId{0} : applied.shares.at(0).table;
  Session session{.table = table, .id = step.session};
  if (const Session* const known = Find(table, step.session)) {
    session = *known;
    sessions_.erase(sessions_.begin() + (known - sessions_.data()));
  }
  session.epoch = std::max(session.epoch, step.epoch);
  session.steps[step.number] = applied;
  sessions_.push_back(std::move(session));
  if (sessions_.size() <= most_sessions_) return;
  forgotten_epoch_ = std::max(forgotten_epoch_.value_or(0), sessions_.front().epoch);
  epoch_ = std::max(epoch_, *forgotten_epoch_ + 1);
  sessions_.erase(sessions_.begin());
}

void ModelNames::Forget(TableId table) {
  std::erase_if(sessions_, [&](const Session& session) { return session.table == table; });
}

}  // namespace slotwise::sim
