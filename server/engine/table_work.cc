#include "server/engine/table_work.h"

#include <array>
#include <cstdint>
#include <string>

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
    std::array<std::uint64_t, 4> sums{table.shard->Usage().rows, added.count, added.exact ? 0U : 1U,
                                      prepared.ok() ? 0U : 1U};
    collective_.AllReduceSum(sums);
    return sums;
  };
  auto [rows, new_rows, inexact, failed] = agree();
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
  table.shard->Insert();
  return {};
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
