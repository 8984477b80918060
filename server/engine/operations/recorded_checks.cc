#include "server/engine/operations/recorded_checks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>

#include "server/durability/bounds.h"
#include "server/durability/row_checks.h"
#include "server/engine/operations/replay_context.h"

namespace slotwise {
namespace {

Status OneKeyABag(std::span<const std::uint32_t> offsets) {
  for (std::size_t bag = 0; bag < offsets.size(); ++bag) {
    if (offsets[bag] == bag) continue;
    return DataLoss("offsets[" + std::to_string(bag) + "] is " + std::to_string(offsets[bag]) +
                    ", where every bag has one key");
  }
  return {};
}

}  // namespace

Status CheckBatches(std::span<const RecordedBatches> of_ranks) {
  if (Status alike = CheckAlike(of_ranks); !alike.ok()) return alike;
  const RecordedBatches& first = of_ranks.front();
  if (first.shares.empty()) return DataLoss("the record is of no table");
  for (const RecordedShare& share : first.shares) {
    if (share.steps > kMaxSteps)
      return DataLoss("steps is " + std::to_string(share.steps) + ", which no table's count reaches");
    for (const RecordedPart& part : share.parts) {
      if (part.rank >= of_ranks.size()) {
        return DataLoss("a part came to rank " + std::to_string(part.rank) + " of " +
                        std::to_string(of_ranks.size()));
      }
    }
  }
  return {};
}

Status CheckRowsByKey(std::span<const RecordedBatches> of_ranks) {
  if (Status batches = CheckBatches(of_ranks); !batches.ok()) return batches;
  const std::size_t tables = of_ranks.front().shares.size();
  if (tables != 1)
    return DataLoss("the record is of " + std::to_string(tables) + " tables, and has to be of one");
  return {};
}

Status CheckStep(const RecordedBatches& record) {
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

Status CheckRows(std::span<const float> rows, const RecordColumns& columns) {
  const auto refuse = [&](std::size_t place) {
    return DataLoss("number " + std::to_string(place % columns.all) + " of row " +
                    std::to_string(place / columns.all) + " is " + std::to_string(rows[place]) +
                    ", which no row can have");
  };
  if (columns.score == columns.all) {
    if (const auto wrong = FirstWrongNumber(std::as_bytes(rows), DataType::kFloat32, false))
      return refuse(*wrong);
  }
  if (columns.squares == columns.all) return {};
  for (std::size_t row = 0; row < rows.size(); row += columns.all) {
    const auto of_row = rows.subspan(row, columns.all);
    if (columns.score < columns.all) {
      const auto numbers = std::as_bytes(of_row.first(columns.score));
      if (const auto wrong = FirstWrongNumber(numbers, DataType::kFloat32, false))
        return refuse(row + *wrong);
      const std::uint64_t score = ScoreOf(&of_row[columns.score]);
      if (score >= kScoreBound && score != kScoreOfNew)
        return DataLoss("row " + std::to_string(row / columns.all) + " has the score " +
                        std::to_string(score) + ", which no row can have");
    }
    const auto squares = std::as_bytes(of_row.subspan(columns.squares, columns.score - columns.squares));
    if (const auto wrong = FirstWrongNumber(squares, DataType::kFloat32, true))
      return refuse(row + columns.squares + *wrong);
  }
  return {};
}

}  // namespace slotwise
