#include "server/engine/operations/batch_round.h"

#include <memory>
#include <utility>

#include "server/engine/operations/recorded_batches.h"

namespace slotwise {
namespace {

// Copies an array of device memory.
template <class T>
void Download(Device& device, const BatchArray<T>& from, BatchArray<T>& to) {
  to = BatchArray<T>(from.size());
  device.Download(to.data(), from.data(), from.bytes());
}

// Returns a request's batch for the journal, in host memory; `stage` keeps what the device still reads.
std::shared_ptr<const BatchPart> BatchToRecord(RoundContext& context, const Ticket& ticket, Stage& stage) {
  // The journal's thread may let go of it last: it does nothing then but give memory and a budget back.
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

}  // namespace

std::vector<TableWork::Share> Gather(RoundContext& context, Stage& stage,
                                     std::span<const TableBatch> batches) {
  std::vector<TableShare> shares;
  shares.reserve(batches.size());
  for (const TableBatch& batch : batches) shares.push_back(batch.share());
  const std::vector<BatchView> gathered = stage.gather().Gather(shares, context.carried);
  std::vector<TableWork::Share> work;
  work.reserve(batches.size());
  for (std::size_t t = 0; t < batches.size(); ++t) work.push_back({&batches[t].table, gathered[t]});
  return work;
}

Status MakeRoomForBatches(RoundContext& context, const Round& round) {
  if (Status may = context.checkpointing.MayUpdate(); !may.ok()) return may;
  if (!context.log.on()) return {};
  return context.log.Reserve(RecordBytes(round, context.collective.rank(), [&](const Ticket& ticket) {
    return context.tickets.BatchOf(ticket.number).bytes();
  }));
}

TableWork::RoomFor RoomForBatches(RoundContext& context, const Round& round) {
  return [&](std::uint64_t) { return MakeRoomForBatches(context, round); };
}

void RecordBatchRound(RoundContext& context, RecordKind kind, const Round& round,
                      std::span<const std::uint64_t> steps, Stage& stage, bool with_state) {
  context.Record(kind, [&] {
    return RecordBatches(round, context.collective.rank(), steps, with_state,
                         [&](const Ticket& ticket) { return BatchToRecord(context, ticket, stage); });
  });
}

}  // namespace slotwise
