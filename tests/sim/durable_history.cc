#include "tests/sim/durable_history.h"

#include <algorithm>
#include <set>
#include <utility>

namespace slotwise::sim {
namespace {

// The most rounds of which it is unknown whether the disk refused them.
constexpr std::size_t kMostUnknown = 10;

// The ranks go by the clock as it was a little before a round.
constexpr Time kSlack = 300'000;

std::uint64_t Remove(ModelTable& table, const RemoveRequest::Asked& asked) {
  using Which = RemoveRequest::Which;
  if (asked.which == Which::kExpired) return table.Sweep(true);
  return asked.which == Which::kAllBut ? table.oracle().EvictAllBut(asked.number)
                                       : table.oracle().EvictBelow(asked.number);
}

}  // namespace

bool Op::IsUpdate() const { return operation != LookupRequest::kOperation; }

void DurableHistory::BeginLife(const DurabilityOptions& durability, bool may_refuse) {
  mode_ = durability.mode;
  interval_ = static_cast<Time>(std::chrono::microseconds(durability.interval).count());
  may_refuse_ = may_refuse;
}

DurableHistory::Entry* DurableHistory::FindEntry(std::size_t op) {
  const auto found = std::ranges::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
    return entry.op == op && entry.end != End::kRefused && entry.end != End::kFull;
  });
  return found == entries_.rend() ? nullptr : &*found;
}

std::string DurableHistory::OnRound(const Round& round, Time now,
                                    const std::function<std::optional<Asker>(Ticket)>& find) {
  if (round.number <= last_round()) return {};  // another rank told of it
  if (round.operation == RemoveRequest::kOperation && round.waiters.empty()) {
    Op sweep{.operation = round.operation, .parts = {Ask{}}, .names = {names_.at(round.table)}, .told = {{}}};
    sweep.parts[0].operation = round.operation;
    ops_.push_back(std::move(sweep));
    entries_.push_back({.round = round.number, .op = ops_.size() - 1, .at = now, .erased = {}});
    return {};
  }
  std::set<std::size_t> ops;
  std::string wrong;
  round.ForEachTable([&](const Round& share) {
    if (round.operation == LookupRequest::kOperation && share.mode != LookupMode::kTrain) return;
    for (const RoundPart& part : share.parts) {
      const auto asker = find(part.ticket);
      if (!asker) continue;
      const Op& op = ops_[asker->op];
      if (round.of_table) names_[share.table] = op.names[asker->part];
      if (!ops.insert(asker->op).second) continue;
      const Entry* const before = FindEntry(asker->op);
      // An alteration that waited for a checkpoint comes again, and has changed nothing before.
      if (op.operation == AlterTableRequest::kOperation && before != nullptr)
        entries_.erase(entries_.begin() + (before - entries_.data()));
      if (op.operation == PushRequest::kOperation && (op.settled || before != nullptr)) {
        wrong = "round " + std::to_string(round.number) + " applies a step again: " + op.parts[0].Describe() +
                (before == nullptr ? "" : ", which was applied in round " + std::to_string(before->round));
      }
      entries_.push_back({.round = round.number,
                          .op = asker->op,
                          .may_refuse = may_refuse_,
                          .mode = mode_,
                          .interval = interval_,
                          .at = now,
                          .erased = {}});
    }
    for (const Ticket& waiter : share.waiters) {
      if (const auto asker = find(waiter)) *asker->waits = true;
    }
  });
  return wrong;
}

std::string DurableHistory::OnAnswer(std::size_t number, std::size_t part, const Reply& reply, bool waited) {
  Op& op = ops_[number];
  Entry* const entry = FindEntry(number);
  const std::string who = op.parts[part].Describe();
  if (!reply.status.ok()) {
    if (!waited || entry == nullptr) return {};
    if (entry->acknowledged)
      return who + " was acknowledged in part, and refused in part: " + reply.status.message();
    if (reply.status.reason() == Reason::kTableFull ||
        reply.status.code() == StatusCode::kFailedPrecondition) {
      entry->end = End::kFull;
      return {};
    }
    // An alteration that waits for a checkpoint may find its table dropped, or the server stopping.
    if (!entry->may_refuse && op.operation != AlterTableRequest::kOperation)
      return who + " was refused by a disk that has room and time: " + reply.status.message();
    entry->end = End::kRefused;
    return {};
  }
  if (entry == nullptr && !op.settled) return who + " was acknowledged and not applied";
  if (op.operation == PushRequest::kOperation) {
    auto& told = op.told[part];
    if (told && *told != reply.applied.table_step) {
      return who + " was step " + std::to_string(*told) + " of its table, and is step " +
             std::to_string(reply.applied.table_step) + " now";
    }
    told = reply.applied.table_step;
  }
  if (entry == nullptr) return {};
  entry->end = End::kApplied;
  // A table that was there already, or of which no row went, is in the state of an earlier round.
  entry->acknowledged = (op.operation != CreateTableRequest::kOperation || reply.created.created) &&
                        (op.operation != AlterTableRequest::kOperation || reply.altered.altered) &&
                        (op.operation != RemoveRequest::kOperation || reply.number > 0);
  if (op.operation == EraseRequest::kOperation || op.operation == RemoveRequest::kOperation)
    entry->erased = reply.number;
  return {};
}

void DurableHistory::KeepUntil(std::uint64_t round) {
  // A lookup may have added no keys, and a table may have been there already.
  for (const Entry& entry : entries_) {
    if (entry.round <= round && entry.acknowledged && ops_[entry.op].IsUpdate())
      must_ = std::max(must_, entry.round);
  }
}

std::string DurableHistory::OnRecovered(std::uint64_t round, Lost& lost) {
  if (round < must_) {
    return "the state is that of round " + std::to_string(round) + ", and round " + std::to_string(must_) +
           " was there for good";
  }
  std::optional<Time> first;
  Time last = 0;
  for (const Entry& entry : entries_) {
    if (entry.round <= round) continue;
    Op& op = ops_[entry.op];
    std::ranges::fill(op.told, std::nullopt);
    if (!entry.acknowledged || !op.IsUpdate()) continue;
    if (may_lose_behind_ && entry.round > *may_lose_behind_) {
      ++lost.torn;
      continue;
    }
    if (entry.mode == DurabilityMode::kSync) {
      return "round " + std::to_string(entry.round) + " was acknowledged, and is lost, as all behind round " +
             std::to_string(round) + ": " + op.parts[0].Describe();
    }
    ++lost.acknowledged;
    const bool waits_for_disk = op.operation == PushRequest::kOperation ||
                                op.operation == ImportRequest::kOperation ||
                                op.operation == EraseRequest::kOperation;
    if (!waits_for_disk || entry.mode != DurabilityMode::kInterval) continue;
    if (!first) first = entry.at;
    last = entry.at;
    if (last - *first > entry.interval + kSlack) {
      return "updates of " + std::to_string(last - *first) + " us were lost, and the interval has " +
             std::to_string(entry.interval);
    }
  }
  if (first) lost.span = last - *first;
  std::erase_if(entries_, [&](const Entry& entry) { return entry.round > round; });
  recovered_ = round;
  may_lose_behind_.reset();
  KeepUntil(round);
  return {};
}

std::string DurableHistory::Compare(const std::vector<ObservedTable>& observed, bool settle) {
  const std::vector<Choice> unknown = Choices();
  if (unknown.size() > kMostUnknown)
    return "it is unknown of " + std::to_string(unknown.size()) + " rounds whether they were refused";
  std::string first_difference;
  for (std::uint64_t refused = 0; refused < std::uint64_t{1} << unknown.size(); ++refused) {
    for (std::size_t u = 0; u < unknown.size(); ++u) {
      const bool refuses = (refused >> u & 1) != 0;
      if (unknown[u].shared) {
        unknown[u].entry->alone = refuses;
      } else {
        unknown[u].entry->end = refuses ? End::kRefused : End::kUnknown;
      }
    }
    State state = settled_;
    std::string wrong = ApplyAll(state);
    if (wrong.empty()) wrong = Difference(state, observed);
    if (!wrong.empty()) {
      if (first_difference.empty()) first_difference = wrong;
      continue;
    }
    if (settle) {
      settled_ = std::move(state);
      for (const Entry& entry : entries_) ops_[entry.op].settled |= entry.end != End::kRefused && entry.fits;
      entries_.clear();
    } else {
      for (const Choice& choice : unknown) {
        if (!choice.shared) choice.entry->end = End::kUnknown;
      }
    }
    return {};
  }
  return first_difference + " (" + std::to_string(entries_.size()) +
         " operations are not settled, the last recovery was of round " + std::to_string(recovered_) + ", " +
         std::to_string(unknown.size()) + " of them unknown)";
}

std::vector<DurableHistory::Choice> DurableHistory::Choices() {
  std::vector<Choice> choices;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    Entry& entry = entries_[e];
    // An alteration may have waited for a checkpoint to the end of its life.
    const bool alters = ops_[entry.op].operation == AlterTableRequest::kOperation;
    if (!entry.may_refuse && !alters) continue;
    if (entry.end == End::kUnknown) choices.push_back({&entry, false});
    // Only the first of a round's lookups, and only if there are more.
    const auto shares = [&](std::size_t other) {
      return other < entries_.size() && entries_[other].round == entry.round;
    };
    if (ops_[entry.op].operation == LookupRequest::kOperation && shares(e + 1) && !shares(e - 1))
      choices.push_back({&entry, true});
  }
  return choices;
}

std::string DurableHistory::ApplyAll(State& state) {
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    Entry& entry = entries_[e];
    MakeSharedRows(e, state);
    if (entry.end == End::kRefused) continue;
    entry.fits = true;
    if (std::string wrong = Apply(entry, state, entry.fits); !wrong.empty()) return wrong;
    if (entry.end == End::kApplied && !entry.fits)
      return ops_[entry.op].parts[0].Describe() + " was served, and its table has no room";
    if (entry.end == End::kFull && entry.fits)
      return ops_[entry.op].parts[0].Describe() + " fits, and was told that its table is full";
  }
  return {};
}

void DurableHistory::MakeSharedRows(std::size_t entry, State& state) const {
  const Entry& first = entries_[entry];
  if (ops_[first.op].operation != LookupRequest::kOperation || first.alone) return;
  if (entry > 0 && entries_[entry - 1].round == first.round) return;
  test::Batch all;
  for (std::size_t e = entry; e < entries_.size() && entries_[e].round == first.round; ++e) {
    // If the disk refused one lookup, it had refused what all would evict together.
    if (entries_[e].end == End::kRefused) return;
    all.AddBag(KeysIn(ops_[entries_[e].op].parts[0].batch));
  }
  if (const auto table = state.find(ops_[first.op].names[0]); table != state.end())
    table->second.oracle().MakeRows(all);
}

std::string DurableHistory::Apply(const Entry& entry, State& state, bool& fits) const {
  const Op& op = ops_[entry.op];
  const Ask& ask = op.parts[0];
  if (op.operation == PushRequest::kOperation) return ApplyPush(op, state, fits);
  if (op.operation == CreateTableRequest::kOperation) {
    state.try_emplace(op.names[0], ask.options, 1, DataType::kFloat32, RankLimit{});
    return {};
  }
  const auto found = state.find(op.names[0]);
  if (found == state.end()) return "no table for " + ask.Describe();
  ModelTable& table = found->second;
  switch (op.operation) {
    case LookupRequest::kOperation:
      fits = table.oracle().Lookup(ask.batch, LookupMode::kTrain).has_value();
      return {};
    case DropTableRequest::kOperation:
      state.erase(found);
      return {};
    case SetLearningRateRequest::kOperation:
      table.SetLearningRate(ask.learning_rate);
      return {};
    case AlterTableRequest::kOperation:
      table.Alter(ask.alteration, fits);
      return {};
    case ImportRequest::kOperation:
      fits = !ask.with_state || ask.samples == 0 ||
             ask.values.size() == ask.samples * RecordFloats(table.options());
      if (!fits) return {};
      fits = table.oracle().Import(KeysIn(ask.batch), ask.values, ask.table_steps);
      return {};
    default:
      break;
  }
  if (op.operation == RemoveRequest::kOperation) {
    const bool sweeps = ask.remove.which == RemoveRequest::Which::kExpired;
    fits = sweeps ? table.options().expires() : table.options().has_scores();
    if (!fits) return {};
  }
  const std::uint64_t erased = op.operation == RemoveRequest::kOperation
                                   ? Remove(table, ask.remove)
                                   : table.oracle().Erase(KeysIn(ask.batch));
  if (!entry.erased || *entry.erased == erased) return {};
  return ask.Describe() + " removed " + std::to_string(*entry.erased) + " keys, and not " +
         std::to_string(erased);
}

// The step is applied to copies of its tables, which take the tables' places if all have room.
std::string DurableHistory::ApplyPush(const Op& op, State& state, bool& fits) const {
  std::map<std::uint32_t, std::vector<std::size_t>> shares;  // parts by place, in part order
  for (std::size_t p = 0; p < op.parts.size(); ++p) shares[op.parts[p].step.place].push_back(p);
  State after;
  std::string wrong;
  for (const auto& [place, parts] : shares) {
    const auto found = state.find(op.names[parts[0]]);
    if (found == state.end()) return "no table for " + op.parts[parts[0]].Describe();
    ModelTable& table = after.insert(*found).first->second;
    std::vector<const Ask*> asks;
    for (const std::size_t p : parts) asks.push_back(&op.parts[p]);
    std::vector<float> gradients;
    const test::Batch batch = Joined(asks, gradients);
    if (!table.Push(batch, gradients, op.parts[parts[0]].rate_of_step)) {
      fits = false;
      return {};
    }
    for (const std::size_t p : parts) {
      if (wrong.empty() && op.told[p] && *op.told[p] != table.steps()) {
        wrong = op.parts[p].Describe() + " was said to be step " + std::to_string(*op.told[p]) +
                " of its table, and is step " + std::to_string(table.steps());
      }
    }
  }
  // A step that was refused first, because a table was full, was told the number of its later round.
  if (!wrong.empty()) return wrong;
  for (auto& [name, table] : after) state.insert_or_assign(name, std::move(table));
  return {};
}

std::string DurableHistory::Difference(const State& state, const std::vector<ObservedTable>& observed) {
  std::string tables;
  for (const auto& [name, table] : state) tables += " " + name;
  if (observed.size() != state.size()) {
    tables += ", and the ranks have";
    for (const ObservedTable& table : observed) tables += " " + table.name;
    return "there should be tables" + tables;
  }
  for (const ObservedTable& table : observed) {
    const auto found = state.find(table.name);
    if (found == state.end()) return "there is a table " + table.name + ", and there should be" + tables;
    const ModelTable& model = found->second;
    const TableSummary& summary = table.summary;
    std::uint64_t rows = 0;
    for (const ShardUsage& shard : summary.shards) rows += shard.rows;
    const std::uint64_t model_rows = model.KeysOf(0).size();
    const auto compare = [&](const char* what, const auto& found_value, const auto& right) {
      if (found_value == right) return std::string();
      return "table " + table.name + " has " + what + " " + std::to_string(found_value) +
             ", and should have " + std::to_string(right);
    };
    for (const std::string& wrong :
         {compare("steps", summary.steps, model.steps()), compare("rows", rows, model_rows),
          compare("counted keys", summary.candidates, model.oracle().candidates().size()),
          compare("blocks of a counter", summary.counter_blocks, model.oracle().blocks().size()),
          compare("the learning rate", summary.base_learning_rate,
                  model.options().optimizer.learning_rate)}) {
      if (!wrong.empty()) return wrong;
    }
    TableOptions now = model.options();
    now.optimizer.learning_rate = table.options.optimizer.learning_rate;
    if (now != table.options)
      return "table " + table.name +
             " has other options than it should: " + FirstDifference(table.options, now);
    const DigestSums digest = model.Digest();
    if (digest.low != summary.digest.low || digest.high != summary.digest.high)
      return "table " + table.name + " has " + std::to_string(rows) + " rows, and the wrong numbers in them";
  }
  return {};
}

}  // namespace slotwise::sim
