// Lookup: gather everybody's bags, pool my keys of them, add up the ranks' partial sums where the bags came from.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "server/engine/operations.h"

namespace slotwise {

void Operations::Lookup(const Round& round, Table& table) {
  Stage& stage = NextStage();
  const BatchLayout layout(round, table.info.options.slots, collective_.size());
  const BatchView batch = stage.gather().Gather(round, layout, [&](TicketNumber ticket) -> const BatchPart& {
    return Held<LookupRequest>(ticket).batch;
  });
  const Status prepared = round.mode == LookupMode::kTrain
                              ? PrepareAndInsert(table, batch)
                              : Agree(table.shard->Prepare(batch, false).status());
  if (!prepared.ok()) stage.Close(device_.WorkStream());
  if (!prepared.ok() && round.parts.size() > 1) return LookupOneByOne(round, table);
  if (!prepared.ok()) {
    return AnswerMine<LookupRequest>(
        round, [&](LookupRequest& request) { request.done(prepared); }, &stage);
  }
  const PooledValues mine = PoolMine(stage, table, layout, batch);
  const std::size_t width = std::size_t{table.info.options.slots} * table.info.options.dim;
  std::size_t first = 0;
  for (const RoundPart& part : round.parts) {
    if (!IsMine(part.ticket)) continue;
    Request request = Take(part.ticket.number);
    const std::size_t size = part.samples * width;
    stage.AnswerLater(std::move(std::get<LookupRequest>(request)),
                      PooledValues{{mine.values, mine.values.get() + first}, size});
    first += size;
  }
}

// Requests that only share a round do not share its failure: one whose keys fit is served.
void Operations::LookupOneByOne(const Round& round, Table& table) {
  for (const RoundPart& part : round.parts) {
    Round alone = round;
    alone.parts = {part};
    alone.waiters = {part.ticket};
    Lookup(alone, table);
  }
}

Status Operations::PrepareAndInsert(Table& table, const BatchView& batch) {
  const TableOptions& options = table.info.options;
  const Result<NewRows> prepared = table.shard->Prepare(batch, true);
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
  FinishWhatIsDone();  // the ranks have waited for each other, and for their devices
  return {};
}

PooledValues Operations::PoolMine(Stage& stage, Table& table, const BatchLayout& layout,
                                  const BatchView& batch) {
  const std::uint32_t dim = table.info.options.dim;
  const auto me = static_cast<std::size_t>(Value(collective_.rank()));
  const std::size_t size = layout.bags_of[me] * dim;
  const std::shared_ptr<float[]> mine = arrays_.TakeOfDevice<float>(size);  // written whole below
  float* const pooled = device_.SharesHostMemory() ? mine.get() : stage.pooled().Reserve(size);

  if (collective_.size() == 1) {  // all of a bag is here: no partial sums
    table.shard->Pool(pooled);
    stage.stream().OrderAfter(device_.WorkStream());
  } else {
    const TravellingBags bags{layout.bags_of, layout.size.keys, dim};
    const Way way = travel_.Choose(bags);
    travel_.Pool(*table.shard, bags, way, stage.travel(), pooled);
    stage.stream().OrderAfter(travel_.stream());
    ++(way == Way::kOwnedBags ? table.rounds.owned_bags : table.rounds.all_bags);
  }

  const std::size_t first_bag = std::accumulate(
      layout.bags_of.begin(), layout.bags_of.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
  const float* weights = batch.weights.empty() ? nullptr : batch.weights.data();
  table.shard->DivideBags(stage.stream(), batch.offsets.subspan(first_bag, layout.bags_of[me] + 1), weights,
                          pooled);
  stage.stream().Copy(mine.get(), pooled, size * sizeof(float));
  return {mine, size};
}

}  // namespace slotwise
