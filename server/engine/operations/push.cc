#include "server/engine/operations/push.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/candidates.h"
#include "server/engine/operations/recorded_checks.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

// Refuses a step that could not be prepared. The senders of parts of the table that is the reason hear first.
void RefuseStep(RoundContext& context, std::span<const TableBatch> batches, const Status& why, Stage& stage) {
  for (const bool of_another : {false, true}) {
    for (const TableBatch& batch : batches) {
      if ((batches.size() > 1 && context.work.refused() != &batch.table) != of_another) continue;
      context.AnswerMine<PushRequest>(
          batch.round,
          [&](PushRequest& request) {
            if (of_another && request.refused_with_others) return request.refused_with_others(why);
            request.done(why);
          },
          &stage);
    }
  }
}

// Counts this rank's parts of a step that becomes the table's next one.
void CountParts(RoundContext& context, const TableBatch& batch) {
  const Table& table = batch.table;
  for (const RoundPart& part : batch.round.parts) {
    if (!context.IsMine(part.ticket) || part.samples == 0) continue;
    const auto& push = context.tickets.Get<PushRequest>(part.ticket.number);
    // A client may name any version: one that the table never had is not counted.
    const bool known = push.looked_up.generation != 0 && push.looked_up.generation == table.generation;
    if (known && push.looked_up.step <= table.steps)
      table.counters->CountStaleness(table.steps - push.looked_up.step);
    table.counters->CountGradients(push.gradients);
  }
}

// A step that is about to be applied to its tables.
struct Step {
  TableId first_table{0};
  StepId name;
  // By place: the tables, and the learning rates of this step alone.
  std::vector<Table*> tables;
  std::vector<std::optional<float>> rates;
  std::vector<std::uint32_t> bodies;  // of all parts, by place and part
};

// Applies the step to its tables in order, until update(place, scalars) fails. Returns each table's count of
// steps.
template <class Update>
Result<std::vector<std::uint64_t>> Apply(Tables& tables, const Step& step, Update update) {
  std::vector<Ledger::TableStep> applied;
  std::vector<std::uint64_t> counts;
  for (std::size_t place = 0; place < step.tables.size(); ++place) {
    Table& table = *step.tables[place];
    const Status updated = update(place, ScalarsOfStep(table.optimizer(step.rates[place]), table.steps + 1));
    if (!updated.ok()) return updated;
    applied.push_back({table.info.id, ++table.steps});
    counts.push_back(table.steps);
  }
  tables.Record({KeyOf(step.first_table, step.name).table, step.name.session}, step.name, applied,
                step.bodies);
  return counts;
}

// Applies a round's step, whose batches were inserted.
std::vector<std::uint64_t> ApplyInserted(RoundContext& context, Stage& stage, const Step& step,
                                         std::span<const TableBatch> batches,
                                         std::span<const TableWork::Share> gathered,
                                         std::span<InsertedBatch> inserted) {
  TableWork& work = context.work;
  for (std::size_t t = 0; t < batches.size(); ++t)
    context.checkpointing.BeforeChange(*batches[t].table.shard, inserted[t]);
  std::vector<ValueShare> shares;
  for (const TableBatch& batch : batches) {
    shares.push_back({.of = batch,
                      .columns = batch.table.info.options.dim,
                      .mine_alone = work.TakesMineAlone(batch.bags(), batch.layout.in_part_order)});
  }
  // Grouping needs no gradients, so it runs while they come.
  std::vector<std::optional<GroupedBatch>> grouped(batches.size());
  for (std::size_t t = 0; t < batches.size(); ++t) {
    if (!shares[t].mine_alone) grouped[t] = std::move(inserted[t]).GroupRows();
  }
  const std::vector<const float*> gradients = stage.gather().GatherBagValues(shares);
  for (auto& batch : grouped) {
    if (batch) batch->PlanSums();
  }
  stage.gather().OrderWorkAfterValues();
  const auto update = [&](std::size_t t, const StepScalars& scalars) -> Status {
    Table& table = batches[t].table;
    if (grouped[t]) {
      work.Update(table, std::move(*grouped[t]), gradients[t], scalars);
    } else {
      work.UpdateByMine(table, std::move(inserted[t]), batches[t].bags(), gradients[t], scalars,
                        stage.distribution_arrays());
    }
    return {};
  };
  const std::vector<std::uint64_t> counts = *Apply(context.tables, step, update);
  work.CountCandidates(gathered);
  return counts;
}

// Applies a recorded step to one of its tables.
Status ApplyRecorded(Table& table, Table* candidates, const RecordedGather::Batch& batch,
                     const StepScalars& scalars) {
  Result<NewBatch> prepared =
      table.shard->PreparePush(batch.view, Candidates::For(table, candidates)).Finish();
  if (!prepared.ok()) return prepared.status();
  CandidateKeys keys;
  std::optional<NewBatch> counted;
  if (candidates != nullptr) {
    keys = prepared->Candidates();
    Result<NewBatch> counts = Candidates::Prepare(*candidates, keys);
    if (!counts.ok()) return counts.status();
    counted.emplace(std::move(*counts));
  }
  std::move(*prepared).Insert(scalars.step).Update(batch.values, scalars);
  if (counted) {
    Candidates::Count(*candidates, std::move(*counted).Insert(candidates->steps + 1), keys, {});
  }
  return {};
}

}  // namespace

void Push::Run(RoundContext& context, const Round& round) {
  std::vector<TableBatch> batches;
  Step step{.first_table = round.table, .name = round.step, .tables = {}, .rates = {}, .bodies = {}};
  round.ForEachTable([&](const Round& share) {
    batches.push_back(context.BagsOf(share));
    step.tables.push_back(&batches.back().table);
    step.rates.push_back(share.learning_rate);
    step.bodies.insert(step.bodies.end(), share.bodies.begin(), share.bodies.end());
  });
  Stage& stage = context.stages.Next();
  std::vector<TableWork::Share> gathered = stage.gather().Gather(batches, context.carried);
  for (TableWork::Share& share : gathered) share.candidates = context.tables.CandidatesOf(*share.table);
  auto inserted = context.work.PrepareAndInsert(
      gathered, PrepareFor::kPush,
      [&](std::uint64_t, std::uint64_t bytes) { return context.MakeRoomForBatches(round, bytes); });
  if (inserted.ok()) {
    context.stages.FinishDone();  // the ranks have waited for each other, and for their devices
    for (const TableBatch& batch : batches) CountParts(context, batch);
    const std::vector<std::uint64_t> counts =
        ApplyInserted(context, stage, step, batches, gathered, *inserted);
    const std::span<const Eviction> evictions = context.work.evictions();
    const bool with_rates = !evictions.empty() || BringsRates(round);
    const RecordKind kind = !evictions.empty() ? kWithEvictions : with_rates ? kAtOwnRates : kAtTablesRates;
    context.RecordBatchRound(kind, round, counts, stage, {.with_rates = with_rates, .evictions = evictions});
  }
  stage.Close(context.device.WorkStream());
  if (!inserted.ok()) return RefuseStep(context, batches, inserted.status(), stage);
  // The answer need not wait for the device: all later reads of the tables are ordered after the updates, and
  // a device that fails ends the server.
  for (const TableBatch& batch : batches) {
    context.AnswerMineOnceRecorded<Request>(batch.round,
                                            AppliedStep{batch.table.steps, batch.table.version()}, &stage);
  }
}

Result<Push::Record> Push::Read(RecordKind kind, Rank rank, std::span<const std::byte> body) {
  return ReadBatches(rank, body, kind != kAtTablesRates, kind == kWithEvictions);
}

Status Push::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  if (Status alike = CheckBatches(of_ranks); !alike.ok()) return alike;
  const Record& first = of_ranks.front();
  if (Status step = CheckStep(first); !step.ok()) return step;
  const Ledger& ledger = context.tables.ledger();
  const Ledger::Sequence sequence{KeyOf(first.shares.front().table, first.step).table, first.step.session};
  const std::uint64_t number = first.step.number;
  if (ledger.Find(sequence, number) != nullptr || ledger.IsTooOld(sequence, number))
    return DoesNotFollow("step " + std::to_string(number) + " of its session was applied before");
  Step step{
      .first_table = first.shares.front().table, .name = first.step, .tables = {}, .rates = {}, .bodies = {}};
  for (const RecordedShare& share : first.shares) {
    if (Status there = CheckThereIs(context.tables, share.table); !there.ok()) return there;
    Table& table = *context.tables.Get(share.table);
    const TableOptions& options = table.info.options;
    if (share.learning_rate) {
      if (const Status rate = ValidateStepRate(*share.learning_rate, options); !rate.ok())
        return DataLoss(rate.message());
    }
    if (table.steps + 1 != share.steps) {
      return DoesNotFollow("step " + std::to_string(share.steps) + " of table " + options.name.str() +
                           " comes behind step " + std::to_string(table.steps));
    }
    step.tables.push_back(&table);
    step.rates.push_back(share.learning_rate);
    std::vector<RecordedPart> parts = share.parts;
    std::ranges::sort(parts, {}, &RecordedPart::part);
    for (const RecordedPart& part : parts) step.bodies.push_back(part.body);
  }
  if (Status evicted = ReplayEvictionsOf(context, of_ranks); !evicted.ok()) return evicted;
  const auto update = [&](std::size_t place, const StepScalars& scalars) -> Status {
    const TableOptions& options = step.tables[place]->info.options;
    const auto batch = context.gather.Gather(of_ranks, place, &options, RecordColumns::OfValues(options.dim));
    if (!batch.ok()) return batch.status();
    Table& table = *step.tables[place];
    return ApplyRecorded(table, context.tables.CandidatesOf(table), *batch, scalars);
  };
  return Apply(context.tables, step, update).status();
}

}  // namespace slotwise::operations
