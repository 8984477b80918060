#include "server/engine/operations.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace slotwise {
namespace {

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

Operations::Operations(Device& device, Collective& collective, const Exchanges& exchanges,
                       const TableMaker& maker, std::uint64_t max_round_bytes, const TravelOptions& travel,
                       ArrayPool& arrays, Tables& tables, TicketBook& tickets, RoundLog& log,
                       Checkpointing& checkpointing)
    : device_(device),
      collective_(collective),
      maker_(maker),
      arrays_(arrays),
      tables_(tables),
      tickets_(tickets),
      log_(log),
      checkpointing_(checkpointing),
      work_(device, collective, exchanges.bags(), travel, kRoundsOfNewRows * max_round_bytes),
      stages_(device, collective, exchanges, tickets) {
  Connect(device, collective, exchanges.batches());
}

void Operations::Run(const Round& round, const CarriedBatches& carried) {
  const bool overlaps = round.operation == Operation::kLookup || round.operation == Operation::kPush;
  overlaps ? stages_.FinishDone() : stages_.FinishAll();
  round_ = round.number;
  carried_ = carried;
  UseScratch(round);
  Dispatch(round);
  RecordNewKeysOfRound();
  CountRound(round);
  if (!stages_.overlap()) stages_.FinishAll();
}

void Operations::UseScratch(const Round& round) {
  scratch_.clear();
  round.ForEachTable([&](const Round& share) {
    const Table* const table = IsOfNoTable(share.operation) ? nullptr : tables_.Get(share.table);
    if (table == nullptr) return;
    const TableOptions& options = table->info.options;
    std::uint64_t bytes = 0;
    for (const RoundPart& part : share.parts) {
      bytes += share.operation == Operation::kPush
                   ? StepBytes(part.samples, part.keys, options.slots, options.dim, part.weighted)
                   : part.bytes;
    }
    if (bytes > 0) scratch_.push_back({share.table, bytes});
  });
  tables_.scratch().Use(scratch_);
}

void Operations::CountRound(const Round& round) {
  round.ForEachTable([&](const Round& share) {
    const Table* const table = tables_.Get(share.table);
    if (table == nullptr) return;  // the round was of none, or dropped it
    BatchCounts mine;
    for (const RoundPart& part : share.parts) {
      if (!IsMine(part.ticket)) continue;
      mine.samples += part.samples;
      mine.keys += part.keys;
    }
    if (round.operation == Operation::kLookup) table->counters->CountLookups(mine);
    if (round.operation == Operation::kPush) table->counters->CountPushes(mine);
    table->counters->Note(table->state());
  });
}

Operations::TableBatch Operations::TableBatchOf(const Round& round) {
  Table& table = *tables_.Get(round.table);
  return {round, table, BatchLayout(round, table.info.options.slots, collective_.size())};
}

std::vector<TableWork::Share> Operations::Gather(Stage& stage, std::span<const TableBatch> batches) {
  std::vector<TableShare> shares;
  shares.reserve(batches.size());
  for (const TableBatch& batch : batches) shares.push_back(batch.share());
  const std::vector<BatchView> gathered = stage.gather().Gather(shares, carried_);
  std::vector<TableWork::Share> work;
  work.reserve(batches.size());
  for (std::size_t t = 0; t < batches.size(); ++t) work.push_back({&batches[t].table, gathered[t]});
  return work;
}

void Operations::Dispatch(const Round& round) {
  if (round.operation == Operation::kCreateTable) return CreateTable(round);
  if (round.operation == Operation::kSaveCheckpoint) return SaveCheckpoint(round);
  if (round.operation == Operation::kCheckpointEvent) return OnCheckpointEvent(round);
  if (round.operation == Operation::kLoadCheckpoint) return LoadCheckpoint(round);
  if (round.operation == Operation::kDescribeSession) return DescribeSession(round);
  Table& table = *tables_.Get(round.table);  // the agenda decides no round of a table that was dropped
  switch (round.operation) {
    case Operation::kLookup:
      return Lookup(round);
    case Operation::kPush:
      return Push(round);
    case Operation::kSummarize:
      return Summarize(round, table);
    case Operation::kDropTable:
      return DropTable(round);
    case Operation::kSetLearningRate:
      return SetLearningRate(round, table);
    case Operation::kImport:
      return Import(round, table);
    case Operation::kErase:
      return Erase(round, table);
    case Operation::kListKeys:
      return ListKeys(round, table);
    case Operation::kReadRows:
      return ReadRows(round, table);
    case Operation::kCreateTable:
    case Operation::kSaveCheckpoint:
    case Operation::kCheckpointEvent:
    case Operation::kLoadCheckpoint:
    case Operation::kDescribeSession:
      return;
  }
}

}  // namespace slotwise
