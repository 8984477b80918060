#include "server/engine/operations/round_context.h"

#include <memory>
#include <utility>

#include "server/engine/operations/definition.h"
#include "server/engine/operations/recorded_batches.h"

namespace slotwise {
namespace {

// Copies an array of device memory.
template <class T>
void Download(Device& device, const BatchArray<T>& from, BatchArray<T>& to) {
  to = BatchArray<T>(from.size());
  device.Download(to.data(), from.data(), from.bytes());
}

// Takes a request's batch for the journal, in host memory; `stage` keeps the memory that the device still
// reads.
std::shared_ptr<const BatchPart> TakeToRecord(RoundContext& context, const Ticket& ticket, Stage& stage) {
  // The journal's thread may free the batch, which only gives back memory and a budget.
  auto batch = std::make_shared<BatchPart>(std::move(context.tickets.BatchOf(ticket.number)));
  stage.Keep(batch);
  if (batch->memory != MemoryKind::kDevice) return batch;
  auto on_host = std::make_shared<BatchPart>();
  on_host->samples = batch->samples;
  on_host->value_type = batch->value_type;
  Download(context.device, batch->keys, on_host->keys);
  Download(context.device, batch->offsets, on_host->offsets);
  Download(context.device, batch->weights, on_host->weights);
  Download(context.device, batch->values, on_host->values);
  return on_host;
}

// NCCL connects ranks when they first exchange something, and again when blocks are first unequal. No round
// should wait for that, so the ranks do both at the start.
void Connect(Device& device, const Collective& collective, Exchange& exchange) {
  const auto ranks = static_cast<std::size_t>(collective.size());
  std::vector<std::size_t> bytes(ranks, sizeof(std::uint32_t));
  DeviceArray<std::uint32_t> blocks(device);
  blocks.Reserve(ranks + 1);
  exchange.AllGatherBlocks(bytes, blocks.data());
  bytes[0] *= 2;
  exchange.AllGatherBlocks(bytes, blocks.data());
  device.Wait();
}

}  // namespace

RoundContext::RoundContext(Device& of_rank, Collective& ranks, const Exchanges& exchanges,
                           const TableMaker& table_maker, std::uint64_t max_round_bytes,
                           const DistributionOptions& distribution, ArrayPool& pool, Tables& all_tables,
                           PendingRequests& pending, RoundLog& round_log, EvictedLog& evicted_log,
                           Checkpointing& checkpoints, Clock& of_engine)
    : device(of_rank),
      collective(ranks),
      maker(table_maker),
      arrays(pool),
      tables(all_tables),
      tickets(pending),
      log(round_log),
      evicted(evicted_log),
      checkpointing(checkpoints),
      clock(of_engine),
      work(of_rank, ranks, exchanges.bags(), distribution, kRoundsOfNewRows * max_round_bytes,
           [&checkpoints](const Shard& shard, FoundBatch& batch) { checkpoints.BeforeChange(shard, batch); }),
      stages(of_rank, ranks, exchanges, pending) {
  Connect(device, collective, exchanges.batches());
}

Status RoundContext::MakeRoomForBatches(const Round& of, std::uint64_t bytes_of_evictions) {
  if (Status may = checkpointing.MayUpdate(); !may.ok()) return may;
  if (!log.on()) return {};
  const std::uint64_t batches = RecordBytes(
      of, collective.rank(), [&](const Ticket& ticket) { return tickets.BatchOf(ticket.number).bytes(); });
  return log.Reserve(batches + bytes_of_evictions);
}

void RoundContext::RecordBatchRound(RecordKind kind, const Round& of, std::span<const std::uint64_t> steps,
                                    Stage& stage, const RecordedBeside& beside) {
  Record(kind, [&] {
    return RecordBatches(of, collective.rank(), steps, beside,
                         [&](const Ticket& ticket) { return TakeToRecord(*this, ticket, stage); });
  });
}

Status RoundContext::AgreeOnRoomToRecord(std::uint64_t more_bytes) {
  if (Status may = checkpointing.MayUpdate(); !may.ok()) return may;
  if (!log.on()) return {};
  return work.Agree(log.Reserve(kSmallRecord + more_bytes));
}

void RoundContext::Begin(const OperationTraits& operation, const Round& of, const CarriedBatches& with) {
  operation.overlaps ? stages.FinishDone() : stages.FinishAll();
  round = of.number;
  carried = with;
  UseScratch(of);
}

void RoundContext::End(const Round& of) {
  Count(of);
  if (!stages.overlap()) stages.FinishAll();
}

void RoundContext::UseScratch(const Round& of) {
  scratch_.clear();
  of.ForEachTable([&](const Round& share) {
    const Table* const table = tables.Get(share.table);
    if (table == nullptr) return;  // the round has no table
    const TableOptions& options = table->info.options;
    std::uint64_t bytes = 0;
    for (const RoundPart& part : share.parts) {
      bytes += share.is_step() ? StepBytes(part.samples, part.keys, options.slots, options.dim, part.weighted)
                               : part.bytes;
    }
    if (bytes == 0) return;
    scratch_.push_back({share.table, bytes});
    if (share.is_step() && Value(table->candidates) != 0) scratch_.push_back({table->candidates, bytes});
  });
  tables.scratch().Use(scratch_);
}

void RoundContext::Count(const Round& of) {
  of.ForEachTable([&](const Round& share) {
    const Table* const table = tables.Get(share.table);
    if (table == nullptr) return;  // the round had no table, or dropped it
    BatchCounts mine;
    for (const RoundPart& part : share.parts) {
      if (!IsMine(part.ticket)) continue;
      mine.samples += part.samples;
      mine.keys += part.keys;
    }
    if (of.operation_class == OperationClass::kLookup) table->counters->CountLookups(mine);
    if (of.is_step()) table->counters->CountPushes(mine);
    table->counters->Note(table->state());
    const Table* const candidates = tables.CandidatesOf(*table);
    if (candidates != nullptr) candidates->counters->Note(candidates->state());
  });
}

}  // namespace slotwise
