#include "server/engine/table_work.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace slotwise {

TableWork::TableWork(Device& device, Collective& collective, Exchange& exchange, const TravelOptions& travel)
    : device_(device), collective_(collective), travel_(device, collective, exchange, travel) {}

Status TableWork::Agree(const Status& mine) {
  std::array<std::uint64_t, 1> failed{mine.ok() ? 0U : 1U};
  collective_.AllReduceSum(failed);
  if (failed[0] == 0 || !mine.ok()) return mine;
  return ResourceExhausted("another rank has no memory for the batch");
}

Status TableWork::Prepare(Table& table, const BatchView& batch) {
  return Agree(table.shard->Prepare(batch, false).status());
}

Status TableWork::PrepareAndInsert(Table& table, const BatchView& batch) {
  return Insert(table, table.shard->Prepare(batch, true));
}

Status TableWork::PreparePushAndInsert(Table& table, const BatchView& batch) {
  return Insert(table, table.shard->PreparePush(batch));
}

Status TableWork::Insert(Table& table, const Result<NewRows>& prepared) {
  const TableOptions& options = table.info.options;
  NewRows added = prepared.ok() ? *prepared : NewRows{};

  const auto agree = [&] {
    const std::uint64_t mine = table.shard->Usage().rows;
    // A shard has room for new rows whose number is only a bound, and so they are within the rank's limit.
    const bool too_many_here = mine + added.count > table.max_rows_of_rank;
    std::array<std::uint64_t, 5> sums{mine, added.count, added.exact ? 0U : 1U, prepared.ok() ? 0U : 1U,
                                      too_many_here ? 1U : 0U};
    collective_.AllReduceSum(sums);
    return sums;
  };
  auto [rows, new_rows, inexact, failed, crowded_ranks] = agree();
  if (failed > 0) {
    return prepared.ok() ? ResourceExhausted("another rank has no memory for the batch's new keys")
                         : prepared.status();
  }
  if (rows + new_rows > options.max_rows && inexact > 0) {
    added = {table.shard->ExactNewRows(), true};
    new_rows = agree()[1];
  }
  if (rows + new_rows > options.max_rows) {
    return ResourceExhausted("table " + options.name.str() + " is full: it has " + std::to_string(rows) +
                             " of at most " + std::to_string(options.max_rows) +
                             " rows, and the batch brings " + std::to_string(new_rows) + " new keys");
  }
  if (crowded_ranks > 0) return TooManyForARank(table, added.count);
  table.shard->Insert();
  return {};
}

Status TableWork::TooManyForARank(const Table& table, std::uint64_t new_rows) {
  struct Rows {
    std::uint64_t now;
    std::uint64_t wanted;
  };
  const std::uint64_t now = table.shard->Usage().rows;
  const std::vector<Rows> ranks = AllGatherValues(collective_, Rows{now, now + new_rows});
  const auto first =
      std::ranges::find_if(ranks, [&](const Rows& rows) { return rows.wanted > table.max_rows_of_rank; });
  return ResourceExhausted("table " + table.info.options.name.str() + ": rank " +
                           std::to_string(first - ranks.begin()) + " would hold " +
                           std::to_string(first->wanted) + " rows, of which it has " +
                           std::to_string(first->now) + ", and limits.max_rank_percent allows a rank " +
                           std::to_string(table.max_rows_of_rank));
}

DataType TableWork::TypeOfPooled(const Table& table, DataType wanted) const {
  const bool all = collective_.size() == 1 && !Divides(table.info.options.combiner);
  return all ? wanted : DataType::kFloat32;
}

Stream& TableWork::Pool(Table& table, const TravellingBags& bags, TravelArrays& arrays, Numbers pooled) {
  if (collective_.size() == 1) {  // all of a bag is here: there are no partial sums
    table.shard->Pool(pooled);
    return device_.WorkStream();
  }
  const Way way = travel_.Choose(bags);
  travel_.Pool(*table.shard, bags, way, arrays, static_cast<float*>(pooled.data));
  ++(way == Way::kOwnedBags ? table.rounds.owned_bags : table.rounds.all_bags);
  return travel_.stream();
}

void TableWork::Update(Table& table, const TravellingBags& bags, const Gradients& gradients,
                       const StepScalars& scalars, TravelArrays& arrays) {
  // A traffic plan takes the ranks' bags to lie in the batch in rank order. A step's parts lie in part order:
  // only if the two orders are one can owned bags travel.
  const bool alone = gradients.in_part_order && OwnedBagsTravel(bags);
  if (alone) {
    travel_.Update(*table.shard, bags, gradients.mine(), scalars, arrays);
  } else {
    table.shard->Update(gradients.all(), scalars);
  }
  if (collective_.size() > 1) ++(alone ? table.rounds.owned_bags : table.rounds.all_bags);
}

bool TableWork::OwnedBagsTravel(const TravellingBags& bags) const {
  return collective_.size() > 1 && travel_.Choose(bags) == Way::kOwnedBags;
}

}  // namespace slotwise
