// What rounds on batches have in common: each table's parts, where they lie, the batch that all ranks gather,
// and its record.
// Thread-safety: the engine's thread only. Gather is collective.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_BATCH_ROUND_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_BATCH_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/engine/batch_gather.h"
#include "server/engine/operations/record_bytes.h"
#include "server/engine/operations/round_context.h"
#include "server/engine/schedule/round.h"
#include "server/engine/stage.h"
#include "server/engine/table_work.h"
#include "server/engine/tables.h"

namespace slotwise {

// What a round does on one table, and where the parts lie in the table's batch.
struct TableBatch {
  // `slots`: bags a sample; those of the table, or 1 of rows by key.
  TableBatch(const Round& of, Table& of_table, std::uint32_t slots, int ranks)
      : round(of), table(of_table), layout(of, slots, ranks) {}

  std::size_t bags_of(Rank rank) const { return layout.bags_of[static_cast<std::size_t>(Value(rank))]; }
  TableShare share() const { return {&round, &layout}; }
  TravellingBags bags() const { return {layout.bags_of, layout.size.keys, table.info.options.dim}; }

  const Round& round;
  Table& table;
  BatchLayout layout;
  FoundBatch* rows = nullptr;  // those that a lookup has prepared
};

inline TableBatch BagsOf(RoundContext& context, const Round& round) {
  Table& table = *context.tables.Get(round.table);
  return {round, table, table.info.options.slots, context.collective.size()};
}

// A round on rows by key has one key a bag: bag b is batch.keys[b].
inline TableBatch KeysOf(RoundContext& context, const Round& round) {
  return {round, *context.tables.Get(round.table), 1, context.collective.size()};
}

// Returns each table's batch, gathered from all ranks.
std::vector<TableWork::Share> Gather(RoundContext& context, Stage& stage,
                                     std::span<const TableBatch> batches);

// Makes room for the record of a round, which has all arrays that came to this rank; RoomForBatches does so
// when it is called.
TableWork::RoomFor RoomForBatches(RoundContext& context, const Round& round);
Status MakeRoomForBatches(RoundContext& context, const Round& round);
// REQUIRES: there is room. Records the round, with the arrays that came to this rank; `steps` as
// RecordBatches.
void RecordBatchRound(RoundContext& context, RecordKind kind, const Round& round,
                      std::span<const std::uint64_t> steps, Stage& stage, bool with_state = false);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_BATCH_ROUND_H_
