// The referee's rounds: the effect of each on the model tables, and so the required end of its requests.
#include <algorithm>
#include <bit>
#include <utility>

#include "tests/sim/referee.h"

namespace slotwise::sim {
namespace {

bool SameBits(std::span<const float> one, std::span<const float> other) {
  return std::ranges::equal(one, other, [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  });
}

void AddTo(PowerHistogram& histogram, const std::vector<std::uint64_t>& numbers) {
  for (const std::uint64_t number : numbers) ++histogram.buckets[PowerHistogram::BucketOf(number)];
}

}  // namespace

void Referee::Expect(Sent& sent, Expected expected) {
  if (sent.expected) return Fail(sent.Describe() + " ends twice");
  sent.expected = std::move(expected);
  if (sent.unheard) Unhear(sent);
}

std::uint64_t Referee::GatheredBytes(const Ask& ask) const {
  const auto table = tables_.find(ask.table);
  return table == tables_.end() ? 0 : GatheredBytes(ask, table->second.options());
}

// Keys, weights, offsets, and a float for each element of each bag: what all ranks have of a batch. Or 32
// bytes a key: what they work in is about five times as much.
std::uint64_t Referee::GatheredBytes(const Ask& ask, const TableOptions& options) const {
  std::uint64_t slots = options.slots;
  std::uint64_t columns = options.dim;
  if (ask.operation == ImportRequest::kOperation) {
    slots = 1;
    columns = ask.samples == 0 ? 0 : ask.values.size() / ask.samples;
  } else if (ask.operation == EraseRequest::kOperation) {
    slots = 1;
    columns = 0;
  }
  const std::uint64_t bags = ask.samples * slots;
  const std::uint64_t a_key = ask.batch.weights.empty() ? 8 : 12;
  const std::uint64_t gathered = ask.batch.keys.size() * a_key + (bags + 1) * 4 + bags * columns * 4;
  // Partial sums of a push: at most a row of floats for each 11 keys.
  const std::uint64_t sums =
      ask.operation == PushRequest::kOperation ? (ask.batch.keys.size() + 10) / 11 * columns * 4 : 0;
  return std::max({gathered, sums, 32 * ask.batch.keys.size()});
}

void Referee::Run(const Round& round, const std::vector<Sent*>& waiters) {
  Sent* const first = Find(round.parts[0].ticket);
  if (round.operation == CreateTableRequest::kOperation) return RunCreate(*first);
  if (round.operation == ImportRequest::kOperation && first->ask.with_state && first->ask.samples > 0) {
    // The client knew the table before it had scores, or when it still had some.
    const std::size_t floats = RecordFloats(tables_.at(round.table).options());
    if (first->ask.values.size() != floats * first->ask.samples)
      return Expect(*first, StatusCode::kFailedPrecondition);
  }
  // If one rank has no memory for the batch, nothing changes on any.
  if (decided_.back().batch_round && decided_.back().short_ranks != 0) {
    for (Sent* waiter : waiters) Expect(*waiter, StatusCode::kResourceExhausted);
    return;
  }
  ModelTable& table = tables_.at(round.table);
  switch (round.operation) {
    case LookupRequest::kOperation:
      return round.ForEachTable([&](const Round& share) {
        std::vector<Sent*> parts;
        for (const RoundPart& part : share.parts) parts.push_back(Find(part.ticket));
        RunLookup(parts, tables_.at(share.table));
      });
    case PushRequest::kOperation:
      return RunPush(round);
    case DropTableRequest::kOperation:
      return RunDrop(round.table, *first);
    case SummarizeRequest::kOperation:
      for (Sent* waiter : waiters) Expect(*waiter, Summary(table, first->ask));
      return;
    case SetLearningRateRequest::kOperation:
      table.SetLearningRate(first->ask.learning_rate);
      return Expect(*first, StatusCode::kOk);
    case AlterTableRequest::kOperation:
      return RunAlter(*first, table);
    case RemoveRequest::kOperation:
      return RunRemove(*first, table);
    default:
      return RunRows(*first, table);
  }
}

// All are served if their new keys fit together; else each that fits, in their order.
void Referee::RunLookup(const std::vector<Sent*>& parts, ModelTable& table) {
  test::Batch all;
  for (const Sent* sent : parts) {
    if (sent->ask.mode == LookupMode::kTrain) all.AddBag(KeysIn(sent->ask.batch));
  }
  table.oracle().MakeRows(all);
  for (Sent* sent : parts) {
    auto pooled = table.oracle().Lookup(sent->ask.batch, sent->ask.mode);
    if (pooled) {
      Reply reply;
      reply.pooled.version.step = table.steps();
      Expect(*sent, Expected{StatusCode::kOk, std::move(reply), *std::move(pooled)});
    } else {
      Expect(*sent, StatusCode::kResourceExhausted);
    }
  }
}

// A step is applied to copies of its tables, which take the tables' places if all have room.
void Referee::RunPush(const Round& round) {
  ModelNames::Applied names;
  StepId step = round.step;
  step.epoch = 0;
  std::map<TableId, ModelTable> after;
  bool applied = true;
  round.ForEachTable([&](const Round& share) {
    ModelNames::Applied::Share& name = names.shares[static_cast<std::uint32_t>(names.shares.size())];
    std::map<std::uint32_t, Sent*> parts;
    for (const RoundPart& part : share.parts) {
      Sent* const sent = parts[part.part] = Find(part.ticket);
      name.bodies[part.part] = sent->ask.body;
      step.epoch = std::max(step.epoch, sent->ask.step.epoch);
    }
    ModelTable& table = after.emplace(share.table, tables_.at(share.table)).first->second;
    std::vector<const Ask*> asks;
    for (const auto& [number, sent] : parts) asks.push_back(&sent->ask);
    std::vector<float> gradients;
    const test::Batch batch = Joined(asks, gradients);
    applied = table.Push(batch, gradients, parts.begin()->second->ask.rate_of_step) && applied;
    name.table = share.table;
    name.table_step = table.steps();
  });
  step.part = step.place = 0;
  step.parts = static_cast<std::uint32_t>(round.parts.size());
  step.tables = static_cast<std::uint32_t>(names.shares.size());
  std::uint64_t before = 0;
  const std::uint32_t body = names.shares.at(0).bodies.at(0);
  if (names_.Judge(round.table, step, body, &before) == ModelNames::Verdict::kApplied) {
    return Fail("a step is applied twice");
  }
  if (applied) {
    names_.Record(step, names);
    for (auto& [id, table] : after) tables_.insert_or_assign(id, std::move(table));
  }
  round.ForEachTable([&](const Round& share) {
    const std::uint64_t steps = tables_.at(share.table).steps();
    for (const Ticket& waiter : share.waiters) {
      if (applied) {
        Expect(*Find(waiter), Expected{StatusCode::kOk, {.applied = {steps, {0, steps}}}, {}});
      } else {
        Expect(*Find(waiter), StatusCode::kResourceExhausted);
      }
    }
  });
}

void Referee::RunCreate(Sent& sent) {
  const TableOptions& options = sent.ask.options;
  for (const auto& [id, table] : tables_) {
    if (table.options().name != options.name) continue;
    TableOptions now = table.options();
    now.optimizer.learning_rate = table.made().optimizer.learning_rate;  // it may have been set since
    if (now == options || table.made() == options)
      return Expect(sent, Expected{StatusCode::kOk, {.created = {id, false, now}}, {}});
    return Expect(sent, StatusCode::kAlreadyExists);
  }
  const TableId id{next_table_++};  // a table that cannot be made has one too, and so have its candidates
  if (options.has_candidates()) ++next_table_;
  if (decided_.back().short_ranks != 0) return Expect(sent, StatusCode::kResourceExhausted);
  tables_.emplace(
      id, ModelTable(options, plan_.ranks, plan_.engine.distribution.partials, plan_.engine.rank_limit));
  Expect(sent, Expected{StatusCode::kOk, {.created = {id, true, options}}, {}});
}

void Referee::RunAlter(Sent& sent, ModelTable& table) {
  ModelTable after = table;
  bool fits = true;
  const bool altered = after.Alter(sent.ask.alteration, fits);
  if (!fits) return Expect(sent, StatusCode::kFailedPrecondition);
  // A table of candidates that cannot be made has an id too.
  if (altered && after.options().has_candidates() && !KeepsCounts(table.options(), after.options()))
    ++next_table_;
  if (altered && decided_.back().short_ranks != 0) return Expect(sent, StatusCode::kResourceExhausted);
  table = std::move(after);
  TableOptions now = table.options();
  now.optimizer.learning_rate = table.made().optimizer.learning_rate;
  Expect(sent, Expected{StatusCode::kOk, {.altered = {now, altered}}, {}});
}

void Referee::RunDrop(TableId table, Sent& sent) {
  tables_.erase(table);
  names_.Forget(table);
  Expect(sent, StatusCode::kOk);
  const auto end = [&](Sent* waiter) {
    ended_.push_back(waiter);
    Expect(*waiter, StatusCode::kNotFound);
  };
  std::erase_if(ready_, [&](const Ready& ready) {
    const bool names_it =
        std::ranges::any_of(ready.parts, [&](const auto& part) { return part.second->ask.table == table; });
    if (ready.first->ask.operation == CreateTableRequest::kOperation || !names_it) return false;
    std::ranges::for_each(ready.waiters, end);
    return true;
  });
  std::erase_if(incomplete_, [&](const auto& entry) {
    const auto& tables = entry.second.tables;
    if (std::ranges::none_of(tables, [&](const auto& named) { return named.second == table; })) return false;
    std::ranges::for_each(entry.second.waiters, end);
    return true;
  });
}

Expected Referee::Summary(const ModelTable& table, const Ask& ask) const {
  TableSummary summary;
  summary.steps = table.steps();
  summary.learning_rate = table.NextLearningRate();
  summary.base_learning_rate = table.options().optimizer.learning_rate;
  if (ask.with_digest) summary.digest = table.Digest();
  summary.evicted_rows = table.evicted_rows();
  summary.expired_rows = table.expired_rows();
  summary.candidates = table.oracle().candidates().size();
  summary.counter_blocks = table.oracle().blocks().size();
  for (const std::vector<std::uint64_t>& ages : table.oracle().evicted_ages()) {
    AddTo(summary.evicted_ages, ages);
    summary.youngest_evicted = std::bit_floor(*std::ranges::min_element(ages));
  }
  if (ask.with_ages && table.options().has_scores()) {
    AddTo(summary.ages.ages, table.oracle().Ages());
    if (CountsOccurrences(table.options().score())) AddTo(summary.ages.counts, table.oracle().Occurred());
  }
  for (int r = 0; r < plan_.ranks; ++r) {
    ShardUsage usage;
    usage.rows = table.KeysOf(r).size();
    summary.shards.push_back(usage);
  }
  return {StatusCode::kOk, {.summary = summary}, {}};
}

void Referee::RunRemove(Sent& sent, ModelTable& table) {
  using Which = RemoveRequest::Which;
  const auto [which, number] = sent.ask.remove;
  const TableOptions& options = table.options();
  const bool sweeps = which == Which::kExpired;
  if (sweeps ? options.ttl_steps == 0 : !options.has_scores())
    return Expect(sent, StatusCode::kFailedPrecondition);
  // A rank without memory cannot list rows, and need not if none can go.
  const std::uint64_t rows = table.oracle().rows().size();
  const bool lists = sweeps                    ? table.steps() >= options.ttl_steps
                     : which == Which::kAllBut ? rows > number
                                               : number > 0;
  const bool has_memory = !lists || decided_.back().short_ranks == 0;
  Expected expected;
  if (!has_memory) expected.code = StatusCode::kResourceExhausted;
  if (sweeps) {
    expected.reply.number = table.Sweep(has_memory);
  } else if (has_memory) {
    expected.reply.number =
        which == Which::kAllBut ? table.oracle().EvictAllBut(number) : table.oracle().EvictBelow(number);
  }
  Expect(sent, std::move(expected));
}

void Referee::RunRows(Sent& sent, ModelTable& table) {
  const Ask& ask = sent.ask;
  Expected expected;
  if (ask.operation == ImportRequest::kOperation) {
    if (!table.oracle().Import(KeysIn(ask.batch), ask.values, ask.table_steps))
      expected.code = StatusCode::kResourceExhausted;
  } else if (ask.operation == EraseRequest::kOperation) {
    expected.reply.number = table.oracle().Erase(KeysIn(ask.batch));
  } else if (ask.operation == ListKeysRequest::kOperation) {
    for (const std::uint64_t key : table.KeysOf(sent.rank)) expected.reply.keys.push_back(Key{key});
  } else {
    for (const Key key : ask.keys) {
      if (table.OwnerOf(Value(key)) != sent.rank || !table.oracle().rows().contains(Value(key))) continue;
      expected.reply.rows.keys.push_back(key);
      const std::vector<float> record = table.RecordOf(Value(key));
      expected.reply.rows.records.insert(expected.reply.rows.records.end(), record.begin(), record.end());
    }
  }
  Expect(sent, std::move(expected));
}

void Referee::OnAnswer(Sent& sent, const Reply& reply) {
  sent.answer = reply.status;
  if (++sent.answers > 1) return Fail(sent.Describe() + " is answered twice");
  if (!sent.accepted) return;  // OnSubmit judges it
  --open_;
  if (!sent.expected) {
    return Fail(sent.Describe() + " is answered before it was decided: " + reply.status.message());
  }
  if (sent.expected->code != reply.status.code()) {
    return Fail(sent.Describe() + " ends with " + std::string(ToString(reply.status.code())) +
                " instead of " + std::string(ToString(sent.expected->code)) + ": " + reply.status.message());
  }
  if (!reply.status.ok()) return;
  CompareReplies(sent, reply);
  if (sent.ask.operation == DropTableRequest::kOperation) gone_.insert(sent.ask.table);
}

void Referee::CompareReplies(const Sent& sent, const Reply& reply) {
  const Reply& expected = sent.expected->reply;
  const auto compare = [&](bool same, const char* what) {
    if (!same) Fail(sent.Describe() + " is answered with a wrong " + what);
  };
  switch (sent.ask.operation) {
    case LookupRequest::kOperation:
      CheckGeneration(sent, reply.pooled.version.generation);
      compare(reply.pooled.version.step == expected.pooled.version.step, "version");
      return compare(!sent.reads_values || IsAnswerOf(sent.ask, sent.expected->pooled, reply.pooled),
                     "value");
    case PushRequest::kOperation:
      CheckGeneration(sent, reply.applied.now.generation);
      compare(reply.applied.now.step == expected.applied.now.step, "version");
      return compare(reply.applied.table_step == expected.applied.table_step, "step");
    case EraseRequest::kOperation:
    case RemoveRequest::kOperation:
      return compare(reply.number == expected.number, "number");
    case CreateTableRequest::kOperation:
      return compare(reply.created.id == expected.created.id &&
                         reply.created.created == expected.created.created &&
                         reply.created.options == expected.created.options,
                     "table");
    case AlterTableRequest::kOperation:
      return compare(reply.altered.altered == expected.altered.altered &&
                         reply.altered.options == expected.altered.options,
                     "options");
    case SummarizeRequest::kOperation: {
      CheckGeneration(sent, reply.summary.generation);
      compare(reply.summary.steps == expected.summary.steps, "count of steps");
      compare(reply.summary.learning_rate == expected.summary.learning_rate, "learning rate");
      compare(reply.summary.base_learning_rate == expected.summary.base_learning_rate, "base learning rate");
      compare(reply.summary.digest == expected.summary.digest, "digest");
      compare(reply.summary.evicted_rows == expected.summary.evicted_rows, "count of evicted rows");
      compare(reply.summary.expired_rows == expected.summary.expired_rows, "count of expired rows");
      compare(reply.summary.candidates == expected.summary.candidates, "count of candidates");
      compare(reply.summary.counter_blocks == expected.summary.counter_blocks,
              "count of the counter's blocks");
      compare(reply.summary.evicted_ages == expected.summary.evicted_ages, "ages of evicted rows");
      compare(reply.summary.youngest_evicted == expected.summary.youngest_evicted, "age of the youngest");
      compare(reply.summary.ages == expected.summary.ages, "ages of rows");
      return compare(std::ranges::equal(reply.summary.shards, expected.summary.shards, {}, &ShardUsage::rows,
                                        &ShardUsage::rows),
                     "count of rows");
    }
    case ListKeysRequest::kOperation: {
      std::vector<Key> keys = reply.keys;
      std::ranges::sort(keys);
      return compare(keys == expected.keys, "list of keys");
    }
    case ReadRowsRequest::kOperation:
      return compare(
          reply.rows.keys == expected.rows.keys && SameBits(reply.rows.records, expected.rows.records),
          "row");
    default:
      return;
  }
}

void Referee::CheckGeneration(const Sent& sent, std::uint64_t generation) {
  const auto [known, is_new] = generations_.try_emplace(generation, sent.ask.table);
  if (generation == 0 || known->second != sent.ask.table)
    return Fail(sent.Describe() + " has another's generation");
  if (!is_new) return;
  for (const auto& [other, table] : generations_) {
    if (other != generation && table == sent.ask.table) Fail(sent.Describe() + " has a new generation");
  }
}

void Referee::OnEnd() {
  for (const Sent& sent : journal_.all()) {
    if (sent.answers != 1) return Fail(sent.Describe() + " is never answered");
  }
  if (!ready_.empty() || !incomplete_.empty()) Fail("the engines ended with requests that wait");
  for (const std::uint64_t decisions : decisions_) {
    if (decisions != decided_.size() - 1) Fail("the ranks did not make as many decisions");
  }
}

}  // namespace slotwise::sim
