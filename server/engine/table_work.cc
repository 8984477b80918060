#include "server/engine/table_work.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/candidates.h"
#include "server/engine/refusals.h"

namespace slotwise {

TableWork::TableWork(Device& device, Collective& collective, Exchange& exchange,
                     const DistributionOptions& distribution, std::uint64_t max_new_bytes,
                     Evictor::BeforeChange before_change)
    : device_(device),
      collective_(collective),
      distributor_(device, collective, exchange, distribution),
      max_new_bytes_(max_new_bytes),
      before_change_(std::move(before_change)),
      evictor_(collective, before_change_) {}

Status TableWork::Agree(const Status& mine) {
  Refusals refusals = Refusals::Of(mine);
  collective_.AllReduceSum({&refusals.all, 3});
  if (refusals.all == 0 || !mine.ok()) return mine;
  return OnAnotherRank(refusals, "another rank has no memory for the batch, or cannot write its journal");
}

Result<std::span<FoundBatch>> TableWork::Prepare(std::span<const Share> shares) {
  found_.clear();
  Status mine;
  for (const Share& share : shares) {
    Result<FoundBatch> batch = share.table->shard->PrepareFind(share.batch, share.or_initial);
    if (batch.ok()) found_.push_back(std::move(*batch));
    if (mine.ok()) mine = batch.status();
  }
  if (Status agreed = Agree(mine); !agreed.ok()) return agreed;
  return std::span(found_);
}

Result<std::span<InsertedBatch>> TableWork::PrepareAndInsert(std::span<const Share> shares,
                                                             PrepareFor purpose, const RoomFor& room,
                                                             std::uint64_t steps) {
  evictor_.Clear();
  PrepareNew(shares, purpose);
  if (Status agreed = AgreeToInsert(prepared_, room); !agreed.ok()) return agreed;
  if (!too_full_.empty()) {
    std::size_t refused = 0;
    std::uint64_t bytes = 0;
    const std::uint64_t new_rows = NewRowsOf(prepared_);
    Evictor::RoomForSpared room_for_spared;
    if (room) {
      room_for_spared = [&](std::uint64_t keys) {
        bytes += EvictionBytes(keys);
        return room(new_rows, bytes);
      };
    }
    if (Status evicted = evictor_.Evict(too_full_, room_for_spared, refused); !evicted.ok()) {
      const Table* const full = too_full_[refused].table;
      const auto same = std::ranges::find(prepared_, full, &Prepared::table);
      refused_ = same->of != nullptr ? same->of : full;
      return evicted;
    }
    PrepareNew(shares, purpose);
    // Rows have gone, so the batch may not be refused any more. The eviction has reserved what it needs.
    if (Status agreed = AgreeToInsert(prepared_, {}); !agreed.ok() || !too_full_.empty())
      throw std::runtime_error("a batch cannot be inserted after an eviction for it: " + agreed.message());
  }
  inserting_.clear();
  inserted_.clear();
  for (Prepared& prepared : prepared_) {
    const std::uint64_t next = std::max(prepared.table->steps, steps) + 1;
    const EvictionOrder order = EvictionOrder::Of(prepared.table->info.options, next);
    inserting_.push_back(std::move(*prepared.batch).BeginInsert(order.OfNew()));
  }
  for (Inserting& inserting : inserting_) inserted_.push_back(std::move(inserting).Finish());
  return std::span(inserted_).first(shares.size());
}

void TableWork::PrepareNew(std::span<const Share> shares, PrepareFor purpose) {
  preparing_.clear();
  prepared_.clear();
  candidate_keys_.clear();
  for (const Share& share : shares) {
    Shard& shard = *share.table->shard;
    preparing_.push_back(purpose == PrepareFor::kPush
                             ? shard.PreparePush(share.batch, Candidates::For(*share.table, share.candidates))
                             : shard.PrepareInsert(share.batch));
  }
  for (std::size_t t = 0; t < shares.size(); ++t)
    prepared_.push_back({.table = shares[t].table, .batch = std::move(preparing_[t]).Finish()});
  for (std::size_t t = 0; t < shares.size(); ++t) {
    if (shares[t].candidates == nullptr) continue;
    CandidateKeys keys;
    if (prepared_[t].batch.ok()) keys = prepared_[t].batch->Candidates();
    candidate_keys_.push_back(keys);
    prepared_.push_back({shares[t].candidates,
                         prepared_[t].batch.ok() ? Candidates::Prepare(*shares[t].candidates, keys)
                                                 : prepared_[t].batch.status(),
                         shares[t].table});
  }
}

void TableWork::CountCandidates(std::span<const Share> shares) {
  std::size_t c = 0;
  for (const Share& share : shares) {
    if (share.candidates == nullptr) continue;
    InsertedBatch& counted = inserted_[shares.size() + c];
    Candidates::Count(*share.candidates, std::move(counted), candidate_keys_[c], before_change_);
    ++c;
  }
}

std::uint64_t TableWork::NewRowsOf(std::span<const Prepared> tables) {
  std::uint64_t rows = 0;
  for (const Prepared& prepared : tables) rows += prepared.batch.ok() ? prepared.batch->new_rows().count : 0;
  return rows;
}

bool TableWork::AskForRoom(std::span<Prepared> tables, const RoomFor& room) {
  Status refused = room(NewRowsOf(tables), 0);
  if (refused.ok()) return true;
  // An upper bound of new rows may have been too large.
  bool is_bound = false;
  for (Prepared& prepared : tables) {
    if (!prepared.batch.ok() || prepared.batch->new_rows().exact) continue;
    prepared.batch->ExactNewRows();
    is_bound = true;
  }
  if (is_bound) refused = room(NewRowsOf(tables), 0);
  if (!refused.ok()) tables.front().batch = refused;
  return refused.ok();
}

namespace {

// The sums that the ranks compute before they insert into a table.
struct Sums {
  std::uint64_t rows;
  std::uint64_t new_rows;
  std::uint64_t inexact;        // ranks whose new_rows is only a bound
  Refusals refusals;            // ranks without memory, or with a full or slow journal
  std::uint64_t crowded_ranks;  // ranks that would exceed their bound of rows
  std::uint64_t flooded_ranks;  // over all tables: ranks with more new bytes than allowed
  std::uint64_t without_room;   // over all tables: ranks whose RoomFor refused
};
constexpr std::size_t kSums = sizeof(Sums) / sizeof(std::uint64_t);  // added up as an array

Status Full(const TableOptions& options, const Sums& sums) {
  return ResourceExhausted("table " + options.name.str() + " is full: it has " + std::to_string(sums.rows) +
                           " of at most " + std::to_string(options.max_rows) +
                           " rows, and the batch brings " + std::to_string(sums.new_rows) + " new keys")
      .Because(Reason::kTableFull);
}

}  // namespace

Status TableWork::AgreeToInsert(std::span<Prepared> tables, const RoomFor& room) {
  refused_ = nullptr;
  too_full_.clear();
  const bool has_room = !room || AskForRoom(tables, room);
  std::vector<Sums> sums(tables.size());
  const auto blame = [&](std::size_t t) {
    refused_ = tables[t].of != nullptr ? tables[t].of : tables[t].table;
  };
  const auto refuse = [&](std::size_t t, Status why) {
    blame(t);
    return why;
  };
  const auto agree = [&] {
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const auto& [table, prepared, of] = tables[t];
      const NewRows added = prepared.ok() ? prepared->new_rows() : NewRows{};
      const std::uint64_t mine = table->shard->Usage().rows;
      // A rank that got more rows from a checkpoint keeps them.
      const bool crowded = added.count > 0 && mine + added.count > table->max_rows_of_rank;
      sums[t] = {
          mine, added.count, added.exact ? 0U : 1U, Refusals::Of(prepared.status()), crowded ? 1U : 0U, 0, 0};
    }
    sums.front().flooded_ranks = NewBytes(tables) > max_new_bytes_ ? 1 : 0;
    sums.front().without_room = has_room ? 0 : 1;
    collective_.AllReduceSum({&sums.front().rows, kSums * sums.size()});
  };
  const auto floods = [&] { return sums.front().flooded_ranks > 0; };
  const auto passes = [&](std::size_t t) {
    return sums[t].new_rows > 0 &&
           sums[t].rows + sums[t].new_rows > Evictor::MostRows(tables[t].table->info.options);
  };
  agree();
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (sums[t].refusals.all == 0) continue;
    if (sums.front().without_room == 0) blame(t);
    if (const Result<NewBatch>& mine = tables[t].batch; !mine.ok()) return mine.status();
    return OnAnotherRank(sums[t].refusals, sums.front().without_room > 0
                                               ? "another rank's journal has no room for the round"
                                               : "another rank has no memory for the batch's new keys");
  }
  bool again = false;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if ((!passes(t) && !floods() && sums[t].crowded_ranks == 0) || sums[t].inexact == 0) continue;
    tables[t].batch->ExactNewRows();
    again = true;
  }
  if (again) agree();
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (passes(t)) {
      Table& table = *tables[t].table;
      NewBatch& batch = *tables[t].batch;
      if (!table.info.options.evicts()) return refuse(t, Full(table.info.options, sums[t]));
      too_full_.push_back({&table, &batch, sums[t].rows, sums[t].new_rows, batch.new_rows().count});
      continue;  // ranks' bounds are checked once rows are removed
    }
    if (sums[t].crowded_ranks > 0)
      return refuse(t, TooManyForARank(*tables[t].table, tables[t].batch->new_rows().count));
  }
  if (floods()) return TooManyNewBytes(NewBytes(tables));
  inserted_new_keys_ = std::ranges::any_of(sums, [](const Sums& sum) { return sum.new_rows > 0; });
  return {};
}

Status TableWork::TooManyForARank(const Table& table, std::uint64_t new_rows) {
  struct Rows {
    std::uint64_t now;
    std::uint64_t wanted;
  };
  const std::uint64_t now = table.shard->Usage().rows;
  const std::vector<Rows> ranks = AllGatherValues(collective_, Rows{now, now + new_rows});
  const auto first = std::ranges::find_if(ranks, [&](const Rows& rows) {
    return rows.wanted > rows.now && rows.wanted > table.max_rows_of_rank;
  });
  return ResourceExhausted("table " + table.info.options.name.str() + ": rank " +
                           std::to_string(first - ranks.begin()) + " would hold " +
                           std::to_string(first->wanted) + " rows, of which it has " +
                           std::to_string(first->now) + ", and limits.max_rank_percent allows a rank " +
                           std::to_string(table.max_rows_of_rank))
      .Because(Reason::kNoMemory);
}

std::uint64_t TableWork::NewBytes(std::span<const Prepared> tables) {
  std::uint64_t bytes = 0;
  for (const Prepared& prepared : tables) {
    if (!prepared.batch.ok()) continue;
    const TableOptions& options = prepared.table->info.options;
    const std::uint64_t floats = RecordFloats(options);
    bytes += prepared.batch->new_rows().count * floats * sizeof(float);
  }
  return bytes;
}

Status TableWork::TooManyNewBytes(std::uint64_t mine) {
  const std::vector<std::uint64_t> ranks = AllGatherValues(collective_, mine);
  const auto first = std::ranges::find_if(ranks, [&](std::uint64_t bytes) { return bytes > max_new_bytes_; });
  return ResourceExhausted("the batch brings rank " + std::to_string(first - ranks.begin()) + " " +
                           std::to_string(*first) + " bytes of new rows, more than the " +
                           std::to_string(max_new_bytes_) +
                           " of 8 x limits.max_round_mib: send fewer new keys at once")
      .Because(Reason::kTooLarge);
}

DataType TableWork::TypeOfPooled(const Table& table, DataType wanted) const {
  const bool all = collective_.size() == 1 && !Divides(table.info.options.combiner);
  return all ? wanted : DataType::kFloat32;
}

Stream& TableWork::Pool(Table& table, FoundBatch& batch, const DistributedBags& bags,
                        DistributionArrays& arrays, Numbers pooled) {
  if (collective_.size() == 1) {  // this rank has whole bags: there are no partial sums
    batch.Pool(pooled);
    return device_.WorkStream();
  }
  const OutputDistribution way = distributor_.Choose(bags);
  distributor_.Pool(batch, bags, way, arrays, static_cast<float*>(pooled.data));
  ++(way == OutputDistribution::kOwnedBags ? table.rounds.owned_bags : table.rounds.all_bags);
  return distributor_.stream();
}

// An all-to-all plan needs the ranks' bags in the batch in rank order. A step's parts lie in part order, so
// owned bags can travel only if the two orders are the same.
bool TableWork::TakesMineAlone(const DistributedBags& bags, bool in_part_order) const {
  return collective_.size() > 1 && in_part_order &&
         distributor_.Choose(bags) == OutputDistribution::kOwnedBags;
}

void TableWork::Update(Table& table, GroupedBatch batch, const float* gradients, const StepScalars& scalars) {
  std::move(batch).Update(gradients, scalars);
  if (collective_.size() > 1) ++table.rounds.all_bags;
}

void TableWork::UpdateByMine(Table& table, InsertedBatch batch, const DistributedBags& bags,
                             const float* gradients, const StepScalars& scalars, DistributionArrays& arrays) {
  distributor_.Update(std::move(batch), bags, gradients, scalars, arrays);
  ++table.rounds.owned_bags;
}

}  // namespace slotwise
