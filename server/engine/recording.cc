// Recording: what a rank writes to its journal of a round that changed state.
#include <algorithm>
#include <memory>
#include <utility>

#include "server/engine/operations.h"

namespace slotwise {
namespace {

// Copies an array of device memory.
template <class T>
void Download(Device& device, const BatchArray<T>& from, BatchArray<T>& to) {
  to = BatchArray<T>(from.size());
  device.Download(to.data(), from.data(), from.bytes());
}

// At most so many bytes record a round without a batch: a table's options are the most.
constexpr std::uint64_t kSmallRecord = 8192;

constexpr std::uint64_t kHeadOfKeys = 32;  // what is written of a table beside its new keys, at most

}  // namespace

Status Operations::MakeRoomToRecord(const Round& round) {
  if (Status may = checkpointing_.MayUpdate(); !may.ok()) return may;
  if (!log_.on()) return {};
  return log_.Reserve(RecordBytes(round, collective_.rank(), [&](const Ticket& ticket) {
    return tickets_.BatchOf(ticket.number).bytes();
  }));
}

TableWork::RoomFor Operations::RoomToRecord(const Round& round, std::size_t tables) {
  if (round.operation != Operation::kLookup)
    return [this, &round](std::uint64_t) { return MakeRoomToRecord(round); };
  if (!log_.on()) return {};
  return [this, tables](std::uint64_t new_rows) {
    if (new_rows == 0) return Status();
    // What the round's lookups before these have added goes into the same record.
    std::uint64_t bytes = kSmallRecord + tables * kHeadOfKeys + new_rows * sizeof(Key);
    for (const NewKeys& added : new_keys_) bytes += kHeadOfKeys + added.keys.size() * sizeof(Key);
    return log_.Reserve(bytes);
  };
}

Status Operations::AgreeOnRoomToRecord(std::uint64_t more_bytes) {
  if (Status may = checkpointing_.MayUpdate(); !may.ok()) return may;
  if (!log_.on()) return {};
  return work_.Agree(log_.Reserve(kSmallRecord + more_bytes));
}

std::shared_ptr<const BatchPart> Operations::BatchToRecord(const Ticket& ticket, Stage& stage) {
  // The journal's thread may let go of it last: it does nothing then but give memory and a budget back.
  auto batch = std::make_shared<BatchPart>(std::move(tickets_.BatchOf(ticket.number)));
  stage.Keep(batch);
  if (batch->memory != MemoryKind::kDevice) return batch;
  auto on_host = std::make_shared<BatchPart>();
  on_host->samples = batch->samples;
  on_host->value_type = batch->value_type;
  Download(device_, batch->keys, on_host->keys);
  Download(device_, batch->offsets, on_host->offsets);
  Download(device_, batch->weights, on_host->weights);
  Download(device_, batch->values, on_host->values);
  return on_host;
}

void Operations::RecordBatchRound(RecordKind kind, const Round& round, std::span<const std::uint64_t> steps,
                                  Stage& stage) {
  log_.NoteChange(round_);
  if (!log_.on()) return;
  log_.Append(round_, kind, RecordBatches(round, collective_.rank(), steps, [&](const Ticket& ticket) {
                return BatchToRecord(ticket, stage);
              }));
}

void Operations::RecordNewKeysOf(const Table& table) {
  if (!work_.inserted_new_keys()) return;
  log_.NoteChange(round_);
  if (!log_.on()) return;
  new_keys_.push_back({table.info.id, table.shard->InsertedKeys()});
}

// A round's lookups may insert by table, or one after the other: the round is one record.
void Operations::RecordNewKeysOfRound() {
  if (new_keys_.empty()) return;
  log_.Append(round_, RecordKind::kNewKeys, RecordNewKeys(std::exchange(new_keys_, {})));
}

}  // namespace slotwise
