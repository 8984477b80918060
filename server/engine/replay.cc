#include "server/engine/replay.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "server/engine/record_checks.h"
#include "slotwise/sizing.h"

namespace slotwise {
namespace {

Status DoesNotFollow(const std::string& what) {
  return DataLoss("the journal does not follow the state that it is to be applied to: " + what);
}

// Ids that are larger leave none for tables that come later.
constexpr std::uint32_t kMaxTableId = 0xFFFF'0000;

}  // namespace

Replay::Replay(Device& device, Tables& tables, const TableMaker& maker, CheckpointLoader& loader)
    : device_(device),
      tables_(tables),
      maker_(maker),
      loader_(loader),
      new_keys_(device),
      device_keys_(device),
      device_offsets_(device),
      device_weights_(device),
      device_values_(device) {}

Status Replay::Apply(std::span<const RoundRecord> records) {
  if (Status alike = CheckAlike(records); !alike.ok()) return alike;
  const RoundRecord& first = records.front();
  switch (first.kind) {
    case RecordKind::kPush:
    case RecordKind::kPushAtRates:
      return ApplyPush(records);
    case RecordKind::kNewKeys:
      return ApplyNewKeys(records);
    case RecordKind::kImport:
      return ApplyImport(records);
    case RecordKind::kErase:
      return ApplyErase(records);
    case RecordKind::kCreateTable:
      return CreateTable(first);
    case RecordKind::kDropTable:
      if (const auto table = Find(first.table); !table.ok()) return table.status();
      tables_.Remove(first.table);
      return {};
    case RecordKind::kSetLearningRate: {
      const auto table = Find(first.table);
      if (!table.ok()) return table.status();
      if (const Status rate = ValidateLearningRate(first.learning_rate); !rate.ok())
        return DataLoss(rate.message());
      (*table)->learning_rate = first.learning_rate;
      return {};
    }
    case RecordKind::kLoadCheckpoint:
    case RecordKind::kLoadTables:
      return LoadCheckpoint(first);
  }
  return DataLoss("a record of an unknown kind");
}

Result<Table*> Replay::Find(TableId id) {
  Table* const table = tables_.Get(id);
  if (table == nullptr) return DoesNotFollow("there is no table " + std::to_string(Value(id)));
  return table;
}

Status Replay::CreateTable(const RoundRecord& record) {
  if (tables_.Get(record.table) != nullptr || tables_.Find(record.options.name.view())) {
    return DoesNotFollow("table " + record.options.name.str() + " is there already");
  }
  if (Value(record.table) < tables_.next_id() || Value(record.table) > kMaxTableId) {
    return DoesNotFollow("a new table has id " + std::to_string(Value(record.table)) +
                         ", and the next one is " + std::to_string(tables_.next_id()));
  }
  if (record.lineage == 0) return DataLoss("a table's lineage is 0, which no table has");
  Result<Table> table = maker_.MakeForRowsOfBefore(record.table, record.options, record.lineage);
  if (!table.ok()) return table.status();
  tables_.Add(std::move(*table));
  return {};
}

Status Replay::LoadCheckpoint(const RoundRecord& record) {
  const auto chain = loader_.checkpoints().ChainOf(record.checkpoint.id);
  if (!chain.ok()) {
    return {chain.status().code(),
            "checkpoint " + record.checkpoint.id +
                ", which was loaded then, cannot be used: " + chain.status().message()};
  }
  if (chain->back().name() != record.checkpoint)
    return DoesNotFollow("checkpoint " + record.checkpoint.id + " is not the one that was loaded then");
  auto saved = loader_.Load(*chain, record.lineage, record.loaded);
  if (saved.ok()) tables_.Replace(std::move(*saved));
  return saved.status();
}

Status Replay::Insert(Table& table, const Result<NewRows>& prepared) {
  if (!prepared.ok()) return prepared.status();
  table.shard->Insert();
  return {};
}

Status Replay::ApplyPush(std::span<const RoundRecord> records) {
  const RoundRecord& first = records.front();
  if (Status step = CheckStep(first); !step.ok()) return step;
  const Ledger::Sequence sequence{KeyOf(first.shares.front().table, first.step).table, first.step.session};
  const std::uint64_t number = first.step.number;
  if (tables_.ledger().Find(sequence, number) != nullptr || tables_.ledger().IsTooOld(sequence, number))
    return DoesNotFollow("step " + std::to_string(number) + " of its session was applied before");
  std::vector<Ledger::TableStep> steps;
  std::vector<std::uint32_t> bodies;
  for (std::size_t s = 0; s < first.shares.size(); ++s) {
    const RecordedShare& share = first.shares[s];
    const auto found = Find(share.table);
    if (!found.ok()) return found.status();
    Table& table = **found;
    if (share.learning_rate) {
      if (const Status rate = ValidateStepRate(*share.learning_rate, table.info.options); !rate.ok())
        return DataLoss(rate.message());
    }
    if (table.steps + 1 != share.steps) {
      return DoesNotFollow("step " + std::to_string(share.steps) + " of table " +
                           table.info.options.name.str() + " comes behind step " +
                           std::to_string(table.steps));
    }
    const auto batch =
        Gather(records, s, &table.info.options, table.info.options.dim, table.info.options.dim);
    if (!batch.ok()) return batch.status();
    if (Status inserted = Insert(table, table.shard->PreparePush(batch->view)); !inserted.ok())
      return inserted;
    table.shard->Update(batch->values, ScalarsOfStep(table.optimizer(share.learning_rate), share.steps));
    table.steps = share.steps;
    steps.push_back({share.table, share.steps});
    std::vector<RecordedPart> parts = share.parts;
    std::ranges::sort(parts, {}, &RecordedPart::part);
    for (const RecordedPart& part : parts) bodies.push_back(part.body);
  }
  tables_.Record(sequence, first.step, steps, bodies);
  return {};
}

Status Replay::ApplyImport(std::span<const RoundRecord> records) {
  const RoundRecord& first = records.front();
  const RecordedShare& share = first.shares.front();
  const auto found = Find(share.table);
  if (!found.ok()) return found.status();
  Table& table = **found;
  const TableOptions& options = table.info.options;
  const std::uint32_t state = first.with_state ? StateFloats(options.optimizer.kind, options.dim) : 0;
  if (share.steps < table.steps)
    return DoesNotFollow("an import sets a count of " + std::to_string(table.steps) + " steps to " +
                         std::to_string(share.steps));
  const std::uint32_t columns = options.dim + state;
  const std::uint32_t squares =
      state == 0 ? columns : options.dim + SquaresBegin(options.optimizer.kind, options.dim);
  const auto batch = Gather(records, 0, nullptr, columns, squares);
  if (!batch.ok()) return batch.status();
  if (Status inserted = Insert(table, table.shard->Prepare(batch->view, true)); !inserted.ok())
    return inserted;
  table.shard->Assign(batch->values, columns);
  table.steps = share.steps;
  return {};
}

Status Replay::ApplyErase(std::span<const RoundRecord> records) {
  const auto found = Find(records.front().shares.front().table);
  if (!found.ok()) return found.status();
  const auto batch = Gather(records, 0, nullptr, 0, 0);
  if (!batch.ok()) return batch.status();
  return EraseKeys(*(*found)->shard, batch->view);
}

Status Replay::ApplyNewKeys(std::span<const RoundRecord> records) {
  for (const RoundRecord& record : records) {
    for (const RecordedKeys& recorded : record.new_keys) {
      const auto found = Find(recorded.table);
      if (!found.ok()) return found.status();
      if (recorded.keys.empty()) continue;
      Table& table = **found;
      UseScratch(recorded.table, sizing::RoundBytes(recorded.keys.size(), recorded.keys.size(), 0, false));
      const BatchView batch = new_keys_.Of(recorded.keys);
      if (Status inserted = Insert(table, table.shard->Prepare(batch, true)); !inserted.ok()) return inserted;
    }
  }
  return {};
}

void Replay::UseScratch(TableId table, std::uint64_t bytes) {
  const ScratchBudget::Batch batch{table, bytes};
  tables_.scratch().Use({&batch, 1});
}

Result<Replay::Batch> Replay::Gather(std::span<const RoundRecord> records, std::size_t share,
                                     const TableOptions* pushed_to, std::uint32_t columns,
                                     std::uint32_t squares) {
  // A part, and its arrays in the record of the rank that it came to.
  struct Lying {
    RecordedPart part;
    const RecordedArrays* arrays;
  };
  std::vector<Lying> parts;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const RoundRecord& record = records[rank];
    auto arrays = record.arrays.begin();
    for (std::size_t s = 0; s <= share; ++s) {
      for (const RecordedPart& part : record.shares[s].parts) {
        if (part.rank != rank) continue;
        if (s == share) parts.push_back({part, &*arrays});
        ++arrays;
      }
    }
  }
  if (pushed_to != nullptr) std::ranges::sort(parts, {}, [](const Lying& lying) { return lying.part.part; });

  const bool weighted =
      std::ranges::any_of(parts, [](const Lying& lying) { return lying.part.weighted != 0; });
  keys_.clear();
  offsets_.assign(1, 0);
  weights_.clear();
  values_.clear();
  for (const auto& [part, arrays] : parts) {
    if (Status status = CheckArrays(part, *arrays, pushed_to); !status.ok()) return status;
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max() - 1;
    if (keys_.size() + arrays->keys.size() > kMost || offsets_.size() + arrays->offsets.size() > kMost)
      return DataLoss("the round's parts have more than " + std::to_string(kMost) + " keys, or bags");
    const auto before = static_cast<std::uint32_t>(keys_.size());
    keys_.insert(keys_.end(), arrays->keys.begin(), arrays->keys.end());
    for (const std::uint32_t offset : arrays->offsets.subspan(1)) offsets_.push_back(before + offset);
    if (weighted && arrays->weights.empty()) weights_.insert(weights_.end(), arrays->keys.size(), 1.0F);
    weights_.insert(weights_.end(), arrays->weights.begin(), arrays->weights.end());
    // Of an odd number of 16-bit numbers, another one fills the last word.
    const std::size_t count = (arrays->offsets.size() - 1) * columns;
    if (count * BytesOf(arrays->value_type) > arrays->values.size())
      return DataLoss("a part has too few values");
    const std::size_t first_value = values_.size();
    values_.resize(first_value + count);
    const auto widened = std::span(values_).subspan(first_value);
    Widen(arrays->values.data(), arrays->value_type, widened);
    if (Status status = CheckRows(widened, columns, squares); !status.ok()) return status;
  }
  UseScratch(records.front().shares[share].table,
             (pushed_to == nullptr ? sizing::RoundBytes : sizing::StepBytes)(
                 keys_.size(), offsets_.size() - 1, columns, weighted));
  const auto upload = [&]<class T>(DeviceArray<T>& array, const std::vector<T>& from) {
    T* const to = array.Reserve(from.size());
    device_.Upload(to, from.data(), from.size() * sizeof(T));
    return std::span<const T>(to, from.size());
  };
  Batch batch;
  batch.view.keys = upload(device_keys_, keys_);
  batch.view.offsets = upload(device_offsets_, offsets_);
  if (weighted) batch.view.weights = upload(device_weights_, weights_);
  batch.values = upload(device_values_, values_).data();
  return batch;
}

}  // namespace slotwise
