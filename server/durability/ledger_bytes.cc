// The file format of a ledger. All numbers are little-endian, of 8 bytes:
//
//     version (1), sessions begun, latest forgotten epoch + 1 or 0, epoch, sessions, and for each session,
//     the one that recorded a step longest ago first:
//         table, session, epoch, bodies before, steps, bodies, and for each step, by number:
//             number, first body, parts, tables, and for each table: table, step
//         then the bodies
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "server/durability/bounds.h"
#include "server/durability/ledger.h"

namespace slotwise {
namespace {

constexpr std::uint64_t kVersion = 1;

class Numbers {
 public:
  explicit Numbers(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t Next() {
    std::uint64_t value = 0;
    if (at_ + sizeof(value) > bytes_.size()) {
      failed_ = true;
      return 0;
    }
    std::memcpy(&value, &bytes_[at_], sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  // Returns the next number, a count of elements that follow and have at least `numbers_each` numbers each.
  std::uint64_t NextCount(std::uint64_t numbers_each) {
    const std::uint64_t count = Next();
    const std::uint64_t left = (bytes_.size() - at_) / sizeof(std::uint64_t);
    if (count > left / numbers_each) failed_ = true;
    return failed_ ? 0 : count;
  }
  // Returns the next number, which must be in [least, most].
  std::uint64_t NextIn(std::uint64_t least, std::uint64_t most) {
    const std::uint64_t number = Next();
    if (number < least || number > most) failed_ = true;
    return failed_ ? least : number;
  }
  template <class Small>
  Small NextSmall() {
    return static_cast<Small>(NextIn(0, std::numeric_limits<Small>::max()));
  }
  void Refuse() { failed_ = true; }
  bool failed() const { return failed_; }
  bool at_end() const { return at_ == bytes_.size(); }
  std::size_t at() const { return at_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

std::vector<std::byte> Ledger::Save() const {
  std::vector<std::uint64_t> numbers;
  const auto put = [&](std::uint64_t number) { numbers.push_back(number); };
  put(kVersion);
  put(begun_);
  put(forgotten_epoch_ ? *forgotten_epoch_ + 1 : 0);
  put(epoch());
  put(sessions_.size());
  for (const Sequence& sequence : ages_) {
    const Session& session = sessions_.at(sequence);
    put(Value(sequence.table));
    put(sequence.session);
    put(session.epoch);
    put(session.bodies_before);
    put(session.applied.size());
    put(session.bodies.size());
    for (const Applied& step : session.applied) {
      put(step.number);
      put(step.first_body);
      put(step.parts);
      put(step.tables());
      for (std::uint32_t place = 0; place < step.tables(); ++place) {
        put(Value(step.At(place).table));
        put(step.At(place).step);
      }
    }
    for (const std::uint32_t body : session.bodies) put(body);
  }
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

Status Ledger::Load(std::span<const std::byte> bytes, std::uint32_t next_table) {
  Numbers numbers(bytes);
  if (numbers.Next() != kVersion) numbers.Refuse();
  begun_ = numbers.NextIn(0, kMaxSessionsBegun);
  const std::uint64_t forgotten = numbers.NextIn(0, kMaxEpoch);
  if (forgotten > 0) forgotten_epoch_ = forgotten - 1;
  // Epochs rise with the sessions that have begun; the predecessor's epoch was no later than this.
  limits_.first_epoch = std::max(limits_.first_epoch, numbers.NextIn(0, kMaxEpoch));
  const std::uint64_t sessions = numbers.NextCount(6);
  if (sessions > kMaxSessions) numbers.Refuse();
  // A table that will be made later has no steps.
  const auto next_id = [&](std::uint32_t least) {
    return TableId{static_cast<std::uint32_t>(numbers.NextIn(least, next_table == 0 ? 0 : next_table - 1))};
  };
  for (std::uint64_t s = 0; s < sessions && !numbers.failed(); ++s) {
    Sequence sequence;
    sequence.table = next_id(0);
    sequence.session = numbers.Next();
    const auto [entry, is_new] = sessions_.try_emplace(sequence);
    if (!is_new) {
      numbers.Refuse();
      break;
    }
    Session& session = entry->second;
    session.age = ages_.insert(ages_.end(), sequence);
    session.epoch = numbers.NextIn(0, kMaxEpoch);
    session.bodies_before = numbers.NextIn(0, kMaxSteps);
    const std::uint64_t steps = numbers.NextCount(6);
    const std::uint64_t bodies = numbers.NextCount(1);
    // Each session has recorded a step, and keeps at most this many.
    if (steps == 0 || steps > kWindow || bodies > kBodiesASession) numbers.Refuse();
    for (std::uint64_t i = 0; i < steps && !numbers.failed(); ++i) {
      Applied step;
      step.number = numbers.Next();
      step.first_body = numbers.Next();
      step.parts = numbers.NextSmall<std::uint32_t>();
      const std::uint64_t tables = numbers.NextCount(2);
      if (tables == 0 || (!session.applied.empty() && session.applied.back().number >= step.number))
        numbers.Refuse();
      if (!session.applied.empty() && step.number - session.applied.front().number >= kWindow)
        numbers.Refuse();
      for (std::uint64_t place = 0; place < tables && !numbers.failed(); ++place) {
        const TableId table = next_id(1);
        const TableStep of{table, numbers.NextIn(0, kMaxSteps)};
        place == 0 ? void(step.first = of) : step.others.push_back(of);
      }
      const std::uint64_t last_body = session.bodies_before + bodies;
      if (step.first_body > last_body || step.parts > last_body - step.first_body) numbers.Refuse();
      session.others += step.others.size();
      session.applied.push_back(std::move(step));
    }
    for (std::uint64_t i = 0; i < bodies && !numbers.failed(); ++i)
      session.bodies.push_back(numbers.NextSmall<std::uint32_t>());
    bytes_ += session.bytes();
  }
  if (numbers.failed() || !numbers.at_end()) {
    return DataLoss("the ledger's bytes do not fit together at byte " + std::to_string(numbers.at()));
  }
  KeepWithinLimits();
  return {};
}

}  // namespace slotwise
