#include "server/engine/operations/recorded_evictions.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "server/engine/operations/replay_context.h"

namespace slotwise {

void PutEvictions(RecordWriter& writer, std::span<const Eviction> evictions) {
  writer.Put(static_cast<std::uint32_t>(evictions.size()));
  for (const Eviction& eviction : evictions) {
    writer.Put(eviction.table);
    writer.Put(eviction.last.score);
    writer.Put(eviction.last.tie);
    writer.Put(eviction.all.rows);
    writer.Put(eviction.all.checksum);
    writer.Put(static_cast<std::uint64_t>(eviction.spared.size()));
    writer.Elements(eviction.spared);
  }
}

std::vector<RecordedEviction> GetEvictions(RecordReader& reader) {
  std::vector<RecordedEviction> evictions(reader.GetCount(6 * sizeof(std::uint64_t)));
  for (RecordedEviction& eviction : evictions) {
    eviction.table = reader.Get<TableId>();
    eviction.last.score = reader.Get<std::uint64_t>();
    eviction.last.tie = reader.Get<std::uint64_t>();
    eviction.all.rows = reader.Get<std::uint64_t>();
    eviction.all.checksum = reader.Get<std::uint64_t>();
    const auto spared = reader.Get<std::uint64_t>();
    eviction.spared = reader.GetArray<Key>(spared);
  }
  return evictions;
}

Status ReplayEvictions(ReplayContext& context, std::span<const std::span<const RecordedEviction>> of_ranks) {
  for (std::size_t e = 0; e < of_ranks.front().size(); ++e) {
    const RecordedEviction& first = of_ranks.front()[e];
    if (Status there = CheckThereIs(context.tables, first.table); !there.ok()) return there;
    Table& table = *context.tables.Get(first.table);
    if (!table.info.options.has_scores()) {
      return DoesNotFollow("table " + table.info.options.name.str() +
                           " has no scores, and a round has evicted rows of it");
    }
    std::vector<Key> spared;
    for (const std::span<const RecordedEviction> evictions : of_ranks)
      std::ranges::copy(evictions[e].spared, std::back_inserter(spared));
    if (!spared.empty()) {
      Result<FoundBatch> batch = table.shard->PrepareFind(context.gather.GatherKeys(first.table, spared));
      if (!batch.ok()) return batch.status();
      batch->Protect();
    }
    const EvictionOrder order = EvictionOrder::Of(table.info.options, table.steps + 1);
    if (Status again =
            Evictor::Replay(table, order, first.last, context.evicted, context.round_outcome, Removal::kFull);
        !again.ok())
      return again;
    context.recorded_evicted.rows += first.all.rows;
    context.recorded_evicted.checksum += first.all.checksum;
  }
  return {};
}

}  // namespace slotwise
