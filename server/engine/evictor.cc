#include "server/engine/evictor.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "server/engine/refusals.h"

namespace slotwise {
namespace {

Status OwnKeysDoNotFit(const TableOptions& options, std::uint64_t rows, std::uint64_t new_rows) {
  if (const std::string_view name = options.name.view(); IsOfCandidates(name)) {
    return ResourceExhausted("table " + std::string(name.substr(0, name.size() - kCandidatesSuffix.size())) +
                             " counts at most " + std::to_string(Evictor::MostRows(options)) +
                             " keys that have no row, which is its admission.max_keys, and the batch has " +
                             std::to_string(rows + new_rows) + " such keys")
        .Because(Reason::kTableFull);
  }
  return ResourceExhausted("table " + options.name.str() + " is full of the batch's own keys: " +
                           std::to_string(rows) + " of its rows are of keys that the batch has, the batch " +
                           "brings " + std::to_string(new_rows) + " new keys, and max_rows and eviction.at " +
                           "allow " + std::to_string(Evictor::MostRows(options)) + " rows")
      .Because(Reason::kTableFull);
}

// A snapshot saves the rows of one batch that is to be erased at once, and numbers them with 31 bits.
constexpr std::uint64_t kMostRowsOfRank = (std::uint64_t{1} << 31) - 2;
Status TooManyAtOnce(std::uint64_t rows) {
  return ResourceExhausted("an eviction would remove " + std::to_string(rows) +
                           " rows of a rank at once, and " + std::to_string(kMostRowsOfRank) +
                           " is the most: evict fewer at once, or set eviction.to nearer to eviction.at")
      .Because(Reason::kTooLarge);
}

Status RankWouldHoldTooMany(const Table& table) {
  return ResourceExhausted("table " + table.info.options.name.str() +
                           ": even after an eviction, a rank would hold more rows than the " +
                           std::to_string(table.max_rows_of_rank) + " that limits.max_rank_percent allows")
      .Because(Reason::kNoMemory);
}

}  // namespace

std::uint64_t Evictor::MostRows(const TableOptions& options) {
  return options.evicts() ? RowsOfShare(options.max_rows, options.eviction.at) : options.max_rows;
}

std::optional<EvictionPlace> Evictor::FindLast(Shard& shard, const EvictionOrder& order,
                                               std::uint64_t& count) {
  counts_.resize(PlacePrefix::kDigits);
  PlacePrefix prefix;
  std::uint64_t left = 0;  // places that go among those that begin with the prefix
  for (bool first = true; prefix.bits < PlacePrefix::kBits; first = false) {
    shard.CountPlaces(order, prefix, counts_);
    collective_.AllReduceSum(counts_);
    if (first) {
      count = std::min(count, std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0}));
      if (count == 0) return std::nullopt;
      left = count;
    }
    std::uint32_t digit = 0;
    for (; counts_[digit] < left; ++digit) left -= counts_[digit];
    prefix = prefix.With(digit);
    if (counts_[digit] == left) break;
  }
  return prefix.Last();
}

Status Evictor::Plan(const Full& full, const RoomForSpared& room, Eviction& eviction, Planned& planned) {
  const TableOptions& options = full.table->info.options;
  Shard& shard = *full.table->shard;
  full.batch->Protect();
  const std::uint64_t all = full.rows + full.new_rows;
  std::uint64_t count = all - std::min(all, RowsOfShare(options.max_rows, options.eviction.to));
  const EvictionOrder order = EvictionOrder::Of(options, full.table->steps + 1);
  const std::optional<EvictionPlace> last = FindLast(shard, order, count);
  if (!last || all - count > MostRows(options)) {
    shard.EndProtection(order, {});
    return OwnKeysDoNotFit(options, full.rows - count, full.new_rows);
  }
  eviction.table = full.table->info.id;
  eviction.last = *last;
  Result<ErasableBatch> batch = shard.PrepareEvict(order, *last, planned.mine, &planned.ages);
  Status mine = batch.status();
  if (batch.ok()) planned.batch.emplace(std::move(*batch));
  try {
    eviction.spared = shard.EndProtection(order, last);
  } catch (const std::bad_alloc&) {
    mine = ResourceExhausted("no memory to list the rows that an eviction spares");
  }
  bool crowded = false;
  if (mine.ok()) {
    crowded =
        full.mine > 0 && shard.Usage().rows - planned.mine.rows + full.mine > full.table->max_rows_of_rank;
    if (planned.mine.rows > kMostRowsOfRank) mine = TooManyAtOnce(planned.mine.rows);
    if (mine.ok() && !crowded) mine = shard.ReserveBehind(planned.mine.rows, full.mine);
    if (mine.ok() && room) mine = room(eviction.spared.size());
  }
  struct Sums {
    Refusals refusals;
    std::uint64_t crowded;
    EvictedSums evicted;
    EvictedAges ages;
  } sums{Refusals::Of(mine), crowded ? 1U : 0U, planned.mine, planned.ages};
  constexpr std::size_t kSums = 6 + EvictedAges::kBuckets + 1;
  static_assert(sizeof(Sums) == kSums * sizeof(std::uint64_t), "sums are added up as an array");
  collective_.AllReduceSum({&sums.refusals.all, kSums});
  if (!mine.ok()) return mine;
  if (sums.refusals.all > 0)
    return OnAnotherRank(sums.refusals, "another rank has no memory for an eviction");
  if (sums.crowded > 0) return RankWouldHoldTooMany(*full.table);
  eviction.all = sums.evicted;
  eviction.ages = sums.ages;
  return {};
}

Status Evictor::Evict(std::span<const Full> tables, const RoomForSpared& room, std::size_t& refused) {
  evictions_.assign(tables.size(), {});
  std::vector<Planned> planned(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (Status may = Plan(tables[t], room, evictions_[t], planned[t]); !may.ok()) {
      refused = t;
      evictions_.clear();
      return may;
    }
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    Table& table = *tables[t].table;
    ErasableBatch& batch = *planned[t].batch;
    if (before_change_) before_change_(*table.shard, batch);
    std::move(batch).Erase(EvictedFrom(outcome_, table.info.id, Removal::kFull, planned[t].mine.rows));
    table.evicted_rows += evictions_[t].all.rows;
    table.evicted_ages += evictions_[t].ages;
    table.youngest_evicted = evictions_[t].ages.LeastPossible();
    if (!table.counters) continue;
    table.counters->CountEvicted(planned[t].mine.rows);
    table.counters->CountEvictedAges(planned[t].ages, table.youngest_evicted);
  }
  return {};
}

std::optional<EvictionPlace> Evictor::LastOf(const Table& table, std::uint64_t count) {
  return FindLast(*table.shard, EvictionOrder::Of(table.info.options, table.steps + 1), count);
}

Result<EvictedSums> Evictor::Remove(Table& table, const EvictionOrder& order, const EvictionPlace& last,
                                    Removal why) {
  EvictedSums of_rank;
  Result<ErasableBatch> batch = table.shard->PrepareEvict(order, last, of_rank);
  Status mine = batch.status();
  if (mine.ok() && of_rank.rows > kMostRowsOfRank) mine = TooManyAtOnce(of_rank.rows);
  struct Sums {
    Refusals refusals;
    EvictedSums removed;
  } sums{Refusals::Of(mine), of_rank};
  static_assert(sizeof(Sums) == 5 * sizeof(std::uint64_t), "sums are added up as an array");
  collective_.AllReduceSum({&sums.refusals.all, 5});
  if (!mine.ok()) return mine;
  if (sums.refusals.all > 0)
    return OnAnotherRank(sums.refusals, "another rank has no memory to list the rows that go");
  if (before_change_) before_change_(*table.shard, *batch);
  std::move(*batch).Erase(EvictedFrom(outcome_, table.info.id, why, of_rank.rows));
  return sums.removed;
}

Status Evictor::Replay(const Table& table, const EvictionOrder& order, const EvictionPlace& last,
                       EvictedSums& evicted, RoundOutcome* outcome, Removal why) {
  Shard& shard = *table.shard;
  EvictedSums mine;
  Result<ErasableBatch> batch = shard.PrepareEvict(order, last, mine);
  shard.EndProtection(order, {});
  if (!batch.ok()) return batch.status();
  std::move(*batch).Erase(EvictedFrom(outcome, table.info.id, why, mine.rows));
  evicted.rows += mine.rows;
  evicted.checksum += mine.checksum;
  return {};
}

}  // namespace slotwise
