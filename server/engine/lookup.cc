// Lookup: gather the bags of all ranks, pool this rank's keys of each, and add the ranks' partial sums up on
// the rank that a bag came from.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "server/engine/operations.h"

namespace slotwise {
namespace {

// Numbers of a sample of a lookup.
std::size_t WidthOf(const Table& table) {
  return std::size_t{table.info.options.slots} * table.info.options.dim;
}

}  // namespace

void Operations::Lookup(const Round& round, Table& table) {
  Stage& stage = stages_.Next();
  const BatchLayout layout(round, table.info.options.slots, collective_.size());
  const BatchView batch = stage.gather().Gather(round, layout);
  const Status prepared = round.mode == LookupMode::kTrain
                              ? work_.PrepareAndInsert(table, batch, RoomToRecord(round))
                              : work_.Prepare(table, batch);
  if (!prepared.ok()) {
    stage.Close(device_.WorkStream());
    if (round.parts.size() > 1) return LookupOneByOne(round, table);
    return AnswerMine<LookupRequest>(
        round, [&](LookupRequest& request) { request.done(prepared); }, &stage);
  }
  // The ranks that insert have waited for each other, and for their devices.
  if (round.mode == LookupMode::kTrain) {
    RecordNewKeysOf(table);
    stages_.FinishDone();
  }
  std::vector<LookupRun> runs = MyRuns(round, table);
  PoolMine(stage, table, layout, batch, runs);
  auto run = runs.begin();
  std::size_t first = 0;  // number of the run
  for (const RoundPart& part : round.parts) {
    if (!IsMine(part.ticket)) continue;
    Request request = tickets_.Take(part.ticket.number);
    LookupRequest& lookup = std::get<LookupRequest>(request);
    const std::size_t size = part.samples * WidthOf(table);
    if (lookup.type != run->type) {
      ++run;
      first = 0;
    }
    const std::byte* const values = run->values() + first * BytesOf(run->type);
    run->memory->reservations.push_back(std::move(lookup.answer_reservation));
    stage.AnswerLater(
        [done = std::move(lookup.done),
         answer = PooledValues{{run->memory, values}, size, run->type, table.version()}]() mutable {
          done(std::move(answer));
        });
    stage.Keep(std::move(request));
    first += size;
  }
}

// Requests that only share a round do not share its failure: a request whose keys fit is served.
void Operations::LookupOneByOne(const Round& round, Table& table) {
  Round alone = round;
  alone.others.clear();
  for (const RoundPart& part : round.parts) {
    alone.parts = {part};
    alone.waiters = {part.ticket};
    Lookup(alone, table);
  }
}

std::vector<Operations::LookupRun> Operations::MyRuns(const Round& round, const Table& table) {
  std::vector<LookupRun> runs;
  for (const RoundPart& part : round.parts) {
    if (!IsMine(part.ticket)) continue;
    const DataType type = tickets_.Get<LookupRequest>(part.ticket.number).type;
    if (runs.empty() || runs.back().type != type) runs.push_back({.type = type});
    runs.back().size += part.samples * WidthOf(table);
  }
  return runs;
}

void Operations::PoolMine(Stage& stage, Table& table, const BatchLayout& layout, const BatchView& batch,
                          std::vector<LookupRun>& runs) {
  for (LookupRun& run : runs)
    run.memory->values = arrays_.TakeOfDevice<std::byte>(run.bytes());  // written whole below
  // A single run is pooled as what it is to become, if it can be, and where it is to lie.
  const bool single = runs.size() == 1;
  const DataType type = single ? work_.TypeOfPooled(table, runs.front().type) : DataType::kFloat32;
  const bool in_place = single && type == runs.front().type && device_.SharesHostMemory();
  const std::uint32_t dim = table.info.options.dim;
  const auto me = static_cast<std::size_t>(Value(collective_.rank()));
  void* where = nullptr;
  if (in_place) {
    where = runs.front().values();
  } else {
    where = stage.pooled().Reserve(layout.bags_of[me] * dim);
  }
  const Numbers pooled{where, type};

  const TravellingBags bags{layout.bags_of, layout.size.keys, dim};
  stage.stream().OrderAfter(work_.Pool(table, bags, stage.travel_arrays(), pooled));
  if (type == DataType::kFloat32) {
    const std::size_t first_bag = std::accumulate(
        layout.bags_of.begin(), layout.bags_of.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
    const float* weights = batch.weights.empty() ? nullptr : batch.weights.data();
    table.shard->DivideBags(stage.stream(), batch.offsets.subspan(first_bag, layout.bags_of[me] + 1), weights,
                            static_cast<float*>(pooled.data));
  }
  BringToHost(stage, pooled, runs);
}

void Operations::BringToHost(Stage& stage, Numbers pooled, const std::vector<LookupRun>& runs) {
  std::size_t narrow_bytes = 0;  // the most of a run that is to be converted
  for (const LookupRun& run : runs) {
    if (run.type != pooled.type) narrow_bytes = std::max(narrow_bytes, run.bytes());
  }
  // A device with memory of its own converts there, one run after the other, so that fewer bytes travel.
  std::byte* const there = device_.SharesHostMemory() ? nullptr : stage.narrow().Reserve(narrow_bytes);
  auto* from = static_cast<std::byte*>(pooled.data);
  for (const LookupRun& run : runs) {
    const std::byte* result = from;
    from += run.size * BytesOf(pooled.type);
    if (run.type != pooled.type) {
      std::byte* const to = there != nullptr ? there : run.values();
      stage.stream().Convert({result, pooled.type}, run.size, {to, run.type});
      result = to;
    }
    stage.stream().Copy(run.values(), result, run.bytes());
  }
}

}  // namespace slotwise
