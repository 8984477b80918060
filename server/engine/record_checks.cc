#include "server/engine/record_checks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>

#include "server/durability/bounds.h"
#include "server/durability/row_checks.h"

namespace slotwise {
namespace {

bool SayTheSame(const RoundRecord& a, const RoundRecord& b) {
  return a.kind == b.kind && a.step == b.step && a.with_state == b.with_state && a.shares == b.shares &&
         a.table == b.table && a.options == b.options && a.lineage == b.lineage &&
         a.checkpoint == b.checkpoint && a.loaded == b.loaded && a.learning_rate == b.learning_rate;
}

Status OneKeyABag(std::span<const std::uint32_t> offsets) {
  for (std::size_t bag = 0; bag < offsets.size(); ++bag) {
    if (offsets[bag] == bag) continue;
    return DataLoss("offsets[" + std::to_string(bag) + "] is " + std::to_string(offsets[bag]) +
                    ", where every bag has one key");
  }
  return {};
}

}  // namespace

Status CheckAlike(std::span<const RoundRecord> records) {
  const RoundRecord& first = records.front();
  for (std::size_t rank = 1; rank < records.size(); ++rank) {
    if (!SayTheSame(first, records[rank]))
      return DataLoss("ranks 0 and " + std::to_string(rank) + " have recorded different rounds");
  }
  const bool has_batches =
      IsPush(first.kind) || first.kind == RecordKind::kImport || first.kind == RecordKind::kErase;
  if (has_batches && first.shares.empty()) return DataLoss("the record is of no table");
  if (has_batches && !IsPush(first.kind) && first.shares.size() != 1)
    return DataLoss("the record is of " + std::to_string(first.shares.size()) +
                    " tables, and has to be of one");
  const bool ascend =
      std::ranges::is_sorted(first.loaded) && std::ranges::adjacent_find(first.loaded) == first.loaded.end();
  if (!ascend || first.loaded.empty() != (first.kind != RecordKind::kLoadTables))
    return DataLoss("the loaded tables' ids do not ascend, or there are none");
  for (const RecordedShare& share : first.shares) {
    if (share.steps > kMaxSteps)
      return DataLoss("steps is " + std::to_string(share.steps) + ", which no table's count reaches");
    for (const RecordedPart& part : share.parts) {
      if (part.rank >= records.size()) {
        return DataLoss("a part came to rank " + std::to_string(part.rank) + " of " +
                        std::to_string(records.size()));
      }
    }
  }
  return {};
}

Status CheckStep(const RoundRecord& record) {
  if (const Status step = Validate(record.step); !step.ok()) return DataLoss(step.message());
  if (record.step.epoch > kMaxEpoch)
    return DataLoss("step.epoch is " + std::to_string(record.step.epoch) + ", which no epoch reaches");
  if (record.shares.size() != record.step.tables) {
    return DataLoss("step.tables is " + std::to_string(record.step.tables) + ", and the record is of " +
                    std::to_string(record.shares.size()) + " tables");
  }
  std::set<TableId> tables;
  for (const RecordedShare& share : record.shares) {
    if (!tables.insert(share.table).second)
      return DataLoss("table " + std::to_string(Value(share.table)) + " comes twice in the step");
    std::set<std::uint32_t> parts;
    for (const RecordedPart& part : share.parts) parts.insert(part.part);
    const bool all = parts.size() == record.step.parts && share.parts.size() == record.step.parts;
    if (!all || *parts.rbegin() + 1 != record.step.parts) {
      return DataLoss("step.parts is " + std::to_string(record.step.parts) + ", and table " +
                      std::to_string(Value(share.table)) + " has other parts than 0 to " +
                      std::to_string(record.step.parts - 1));
    }
  }
  return {};
}

Status CheckArrays(const RecordedPart& part, const RecordedArrays& arrays, const TableOptions* pushed_to) {
  const BatchView view{arrays.keys, arrays.offsets, arrays.weights};
  const std::uint32_t slots = pushed_to == nullptr ? 1 : pushed_to->slots;
  if (const Status shape = Validate(view, part.samples, slots); !shape.ok()) return DataLoss(shape.message());
  if (pushed_to == nullptr || pushed_to->combiner == Combiner::kNone) {
    if (Status status = OneKeyABag(arrays.offsets); !status.ok()) return status;
  }
  const auto wrong = FirstWrongNumber(std::as_bytes(arrays.weights), DataType::kFloat32, false);
  if (!wrong) return {};
  return DataLoss("weights[" + std::to_string(*wrong) + "] is " + std::to_string(arrays.weights[*wrong]) +
                  ": must be finite");
}

Status CheckRows(std::span<const float> rows, std::uint32_t columns, std::uint32_t squares) {
  const auto refuse = [&](std::size_t place) {
    return DataLoss("number " + std::to_string(place % columns) + " of row " +
                    std::to_string(place / columns) + " is " + std::to_string(rows[place]) +
                    ", which no row can have");
  };
  if (const auto wrong = FirstWrongNumber(std::as_bytes(rows), DataType::kFloat32, false))
    return refuse(*wrong);
  for (std::size_t row = 0; row < rows.size() && squares < columns; row += columns) {
    const auto state = rows.subspan(row + squares, columns - squares);
    if (const auto wrong = FirstWrongNumber(std::as_bytes(state), DataType::kFloat32, true))
      return refuse(row + squares + *wrong);
  }
  return {};
}

}  // namespace slotwise
