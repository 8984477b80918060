#include "server/engine/operations/replay.h"

#include <cstdint>
#include <string>
#include <vector>

namespace slotwise {

Status ReplayRound(const OperationTable& operations, ReplayContext& context,
                   std::span<const RecordOfRank> of_ranks) {
  const RecordKind kind = of_ranks.front().kind;
  context.reads_of = 0;
  const OperationTraits* const operation = operations.OfRecord(kind);
  if (operation == nullptr) {
    return DataLoss("a record of kind " + std::to_string(static_cast<std::uint32_t>(kind)) +
                    ", which this version does not know");
  }
  std::vector<std::span<const std::byte>> bodies;
  for (const RecordOfRank& record : of_ranks) {
    if (record.kind != kind)
      return DataLoss("ranks 0 and " + std::to_string(bodies.size()) + " have recorded different rounds");
    bodies.push_back(record.body);
  }
  return operation->replay(context, kind, bodies);
}

}  // namespace slotwise
