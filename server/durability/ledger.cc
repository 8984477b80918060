#include "server/durability/ledger.h"

#include <algorithm>
#include <cstddef>

namespace slotwise {
namespace {

// The memory of a session before its first step: nodes of the map and the list, two deques' first blocks.
constexpr std::uint64_t kSessionBytes = 1536;

template <class Steps>
auto PlaceOf(Steps& steps, std::uint64_t number) {
  return std::ranges::lower_bound(steps, number, {}, &Ledger::Applied::number);
}

}  // namespace

std::uint64_t Ledger::Session::bytes() const {
  return kSessionBytes + applied.size() * sizeof(Applied) + others * sizeof(TableStep) +
         bodies.size() * sizeof(std::uint32_t);
}

const Ledger::Applied* Ledger::Find(const Sequence& sequence, std::uint64_t number) const {
  const auto session = sessions_.find(sequence);
  if (session == sessions_.end()) return nullptr;
  const auto step = PlaceOf(session->second.applied, number);
  return step == session->second.applied.end() || step->number != number ? nullptr : &*step;
}

bool Ledger::HadOtherBody(const Sequence& sequence, const Applied& step, std::uint32_t part,
                          std::uint32_t parts, std::uint32_t body) const {
  const Session& session = sessions_.at(sequence);
  if (parts != step.parts || step.first_body < session.bodies_before) return false;
  return session.bodies[step.first_body - session.bodies_before + part] != body;
}

std::optional<Ledger::Newest> Ledger::NewestOf(const Sequence& sequence) const {
  const auto session = sessions_.find(sequence);
  if (session == sessions_.end()) return std::nullopt;
  return Newest{.number = session->second.applied.back().number, .epoch = session->second.epoch};
}

bool Ledger::IsTooOld(const Sequence& sequence, std::uint64_t number) const {
  const auto session = sessions_.find(sequence);
  if (session == sessions_.end()) return false;
  const std::uint64_t newest = session->second.applied.back().number;
  return newest >= kWindow && number <= newest - kWindow;
}

bool Ledger::MayHaveForgotten(const Sequence& sequence, std::uint64_t epoch) const {
  return forgotten_epoch_ && epoch <= *forgotten_epoch_ && !sessions_.contains(sequence);
}

std::uint64_t Ledger::epoch() const {
  // A clock may have been set back since some step, so the epochs of sessions count, too.
  const std::uint64_t by_count = std::max(known_epoch_, limits_.first_epoch + begun_ / kSessionsAnEpoch);
  return forgotten_epoch_ ? std::max(by_count, *forgotten_epoch_ + 1) : by_count;
}

void Ledger::Record(const Sequence& sequence, std::uint64_t number, std::uint64_t epoch,
                    std::span<const TableStep> tables, std::span<const std::uint32_t> bodies) {
  const auto [entry, is_new] = sessions_.try_emplace(sequence);
  Session& session = entry->second;
  if (is_new) {
    ++begun_;
    session.age = ages_.insert(ages_.end(), sequence);
  } else {
    ages_.splice(ages_.end(), ages_, session.age);
    bytes_ -= session.bytes();
  }
  session.epoch = std::max(session.epoch, epoch);
  known_epoch_ = std::max(known_epoch_, epoch);
  session.others += tables.size() - 1;
  session.applied.insert(PlaceOf(session.applied, number),
                         {.number = number,
                          .first = tables.front(),
                          .others = {tables.begin() + 1, tables.end()},
                          .first_body = session.bodies_before + session.bodies.size(),
                          .parts = static_cast<std::uint32_t>(bodies.size())});
  while (session.applied.back().number - session.applied.front().number >= kWindow) {
    session.others -= session.applied.front().others.size();
    session.applied.pop_front();
  }
  session.bodies.insert(session.bodies.end(), bodies.begin(), bodies.end());
  while (session.bodies.size() > kBodiesASession) {
    session.bodies.pop_front();
    ++session.bodies_before;
  }
  bytes_ += session.bytes();
  KeepWithinLimits();
}

void Ledger::ForgetTable(TableId table) {
  for (auto session = sessions_.lower_bound({table, 0});
       session != sessions_.end() && session->first.table == table;) {
    Erase(session++);
  }
}

void Ledger::RecallTable(const Ledger& saved, TableId table) {
  // The newest session goes first, because each is inserted in front of all others.
  for (auto sequence_of = saved.ages_.rbegin(); sequence_of != saved.ages_.rend(); ++sequence_of) {
    const Sequence& sequence = *sequence_of;
    if (sequence.table != table) continue;
    Session session = saved.sessions_.at(sequence);
    if (sessions_.contains(sequence)) {
      for (const Applied& step : session.applied) {
        if (Find(sequence, step.number) != nullptr || IsTooOld(sequence, step.number)) continue;
        Record(sequence, step.number, session.epoch, std::span(&step.first, 1), {});  // without the bodies
      }
      continue;
    }
    session.age = ages_.insert(ages_.begin(), sequence);
    known_epoch_ = std::max(known_epoch_, session.epoch);
    bytes_ += session.bytes();
    sessions_.emplace(sequence, std::move(session));
  }
  if (saved.forgotten_epoch_)
    forgotten_epoch_ = std::max(forgotten_epoch_.value_or(0), *saved.forgotten_epoch_);
  KeepWithinLimits();
}

void Ledger::KeepWithinLimits() {
  while (sessions_.size() > limits_.max_sessions || (bytes_ > limits_.max_bytes && sessions_.size() > 1)) {
    ForgetOldest();
  }
}

void Ledger::ForgetOldest() {
  const auto oldest = sessions_.find(ages_.front());
  forgotten_epoch_ = std::max(forgotten_epoch_.value_or(0), oldest->second.epoch);
  Erase(oldest);
}

void Ledger::Erase(Sessions::iterator session) {
  bytes_ -= session->second.bytes();
  ages_.erase(session->second.age);
  sessions_.erase(session);
}

}  // namespace slotwise
