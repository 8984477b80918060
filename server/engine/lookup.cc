// Lookup: gather the bags of all ranks, pool this rank's keys of each, and add the ranks' partial sums up on
// the rank that a bag came from.
#include <numeric>
#include <utility>

#include "server/engine/operations.h"

namespace slotwise {

void Operations::Lookup(const Round& round, Table& table) {
  Stage& stage = stages_.Next();
  const BatchLayout layout(round, table.info.options.slots, collective_.size());
  const BatchView batch = stage.gather().Gather(round, layout);
  const Status prepared =
      round.mode == LookupMode::kTrain ? work_.PrepareAndInsert(table, batch) : work_.Prepare(table, batch);
  if (!prepared.ok()) {
    stage.Close(device_.WorkStream());
    if (round.parts.size() > 1) return LookupOneByOne(round, table);
    return AnswerMine<LookupRequest>(
        round, [&](LookupRequest& request) { request.done(prepared); }, &stage);
  }
  // The ranks that insert have waited for each other, and for their devices.
  if (round.mode == LookupMode::kTrain) stages_.FinishDone();
  const PooledValues mine = PoolMine(stage, table, layout, batch);
  const std::size_t width = std::size_t{table.info.options.slots} * table.info.options.dim;
  std::size_t first = 0;
  for (const RoundPart& part : round.parts) {
    if (!IsMine(part.ticket)) continue;
    Request request = tickets_.Take(part.ticket.number);
    const std::size_t size = part.samples * width;
    stage.AnswerLater(
        [done = std::move(std::get<LookupRequest>(request).done),
         values = PooledValues{{mine.values, mine.values.get() + first}, size}] { done(values); });
    stage.Keep(std::move(request));
    first += size;
  }
}

// Requests that only share a round do not share its failure: a request whose keys fit is served.
void Operations::LookupOneByOne(const Round& round, Table& table) {
  Round alone = round;
  for (const RoundPart& part : round.parts) {
    alone.parts = {part};
    alone.waiters = {part.ticket};
    Lookup(alone, table);
  }
}

PooledValues Operations::PoolMine(Stage& stage, Table& table, const BatchLayout& layout,
                                  const BatchView& batch) {
  const std::uint32_t dim = table.info.options.dim;
  const auto me = static_cast<std::size_t>(Value(collective_.rank()));
  const std::size_t size = layout.bags_of[me] * dim;
  const std::shared_ptr<float[]> mine = arrays_.TakeOfDevice<float>(size);  // written whole below
  float* const pooled = device_.SharesHostMemory() ? mine.get() : stage.pooled().Reserve(size);

  const TravellingBags bags{layout.bags_of, layout.size.keys, dim};
  stage.stream().OrderAfter(work_.Pool(table, bags, stage.travel_arrays(), pooled));

  const std::size_t first_bag = std::accumulate(
      layout.bags_of.begin(), layout.bags_of.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
  const float* weights = batch.weights.empty() ? nullptr : batch.weights.data();
  table.shard->DivideBags(stage.stream(), batch.offsets.subspan(first_bag, layout.bags_of[me] + 1), weights,
                          pooled);
  stage.stream().Copy(mine.get(), pooled, size * sizeof(float));
  return {mine, size};
}

}  // namespace slotwise
