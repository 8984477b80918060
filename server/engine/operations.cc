#include "server/engine/operations.h"

#include <array>
#include <utility>
#include <variant>
#include <vector>

namespace slotwise {

Operations::Operations(Device& device, Collective& collective, const Exchanges& exchanges,
                       const TravelOptions& travel, ArrayPool& arrays, Agenda& agenda, Tables& tables)
    : device_(device),
      collective_(collective),
      arrays_(arrays),
      agenda_(agenda),
      tables_(tables),
      travel_(device, collective, exchanges.bags(), travel) {
  // A device whose work is done when it was asked for has nothing to do beside it.
  const std::size_t stages = device.SharesHostMemory() ? 1 : kStages;
  while (stages_.size() < stages) stages_.push_back(std::make_unique<Stage>(device, collective, exchanges));
  Connect(exchanges.batches());
}

// NCCL connects ranks when they first exchange something, and again when blocks are first unequal. No round should wait for
// that.
void Operations::Connect(Exchange& exchange) {
  const auto ranks = static_cast<std::size_t>(collective_.size());
  std::vector<std::size_t> bytes(ranks, sizeof(std::uint32_t));
  DeviceArray<std::uint32_t> blocks(device_);
  blocks.Reserve(ranks + 1);
  exchange.AllGatherBlocks(bytes, blocks.data());
  bytes[0] *= 2;
  exchange.AllGatherBlocks(bytes, blocks.data());
  device_.Wait();
}

void Operations::Hold(TicketNumber ticket, Request request) { held_.emplace(ticket, std::move(request)); }

void Operations::Run(const Round& round) {
  const bool overlaps = round.operation == Operation::kLookup || round.operation == Operation::kPush;
  overlaps ? FinishWhatIsDone() : Finish();
  RunNow(round);
  if (!RoundsOverlap()) Finish();
}

void Operations::RunNow(const Round& round) {
  if (round.operation == Operation::kCreateTable) return CreateTable(round);
  Table& table = *tables_.Get(round.table);  // the agenda holds no round of a table that was dropped
  switch (round.operation) {
    case Operation::kLookup:
      return Lookup(round, table);
    case Operation::kPush:
      return Push(round, table);
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
      return;
  }
}

void Operations::Finish() {
  for (std::size_t i = 1; i <= stages_.size(); ++i) stages_[(turn_ + i) % stages_.size()]->Finish();
}

void Operations::FinishWhatIsDone() {
  for (std::size_t i = 1; i <= stages_.size(); ++i) stages_[(turn_ + i) % stages_.size()]->FinishIfDone();
}

Stage& Operations::NextStage() {
  MakeRoom();
  turn_ = (turn_ + 1) % stages_.size();
  return *stages_[turn_];
}

void Operations::Answer(const slotwise::Answer& answer) {
  Request request = Take(answer.ticket.number);
  if (!answer.status.ok()) return Refuse(request, answer.status);
  std::get<PushRequest>(request).done(answer.table_step);  // only pushes end well without a round
}

Status Operations::Agree(const Status& mine) {
  std::array<std::uint64_t, 1> failed{mine.ok() ? 0U : 1U};
  collective_.AllReduceSum(failed);
  if (failed[0] == 0 || !mine.ok()) return mine;
  return ResourceExhausted("another rank has no memory for the batch");
}

std::uint64_t Operations::TakeReleasedBytes() { return std::exchange(released_bytes_, 0); }

void Operations::DropArraysOf(TicketNumber ticket) {
  Request& request = held_.at(ticket);
  released_bytes_ += BytesOf(request);
  DropArrays(request);
}

Request Operations::Take(TicketNumber ticket) {
  auto node = held_.extract(ticket);
  released_bytes_ += BytesOf(node.mapped());
  return std::move(node.mapped());
}

}  // namespace slotwise
