// Lookup: gather the bags of all ranks, pool this rank's keys of each, and add the ranks' partial sums up on
// the rank that a bag came from.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
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

void Operations::Lookup(const Round& round) {
  // Lookups that share a round may be of one table in two modes, or with weights and without.
  std::vector<const Round*> together;
  std::set<TableId> tables;
  round.ForEachTable([&](const Round& share) {
    if (tables.contains(share.table) || (!together.empty() && together.back()->mode != share.mode)) {
      LookupTogether(together);
      together.clear();
      tables.clear();
    }
    together.push_back(&share);
    tables.insert(share.table);
  });
  LookupTogether(together);
}

void Operations::LookupTogether(std::span<const Round* const> rounds) {
  const Round& first = *rounds.front();
  std::vector<TableBatch> batches;
  for (const Round* round : rounds) batches.push_back(TableBatchOf(*round));
  Stage& stage = stages_.Next();
  const std::vector<TableWork::Share> gathered = Gather(stage, batches);
  const bool inserts = first.mode == LookupMode::kTrain;
  const Status prepared =
      inserts ? work_.PrepareAndInsert(gathered, PrepareFor::kInsert, RoomToRecord(first, rounds.size()))
              : work_.Prepare(gathered);
  if (!prepared.ok()) {
    stage.Close(device_.WorkStream());
    if (rounds.size() > 1) {
      for (const Round* const& round : rounds) LookupTogether({&round, 1});
      return;
    }
    if (first.parts.size() > 1) return LookupOneByOne(first);
    return AnswerMine<LookupRequest>(
        first, [&](LookupRequest& request) { request.done(prepared); }, &stage);
  }
  // The ranks that insert have waited for each other, and for their devices.
  if (inserts) {
    for (const TableBatch& batch : batches) RecordNewKeysOf(batch.table);
    stages_.FinishDone();
  }
  PooledNumbers numbers = PooledBy(batches);
  PoolMine(stage, batches, gathered, numbers);
  AnswerWithPooled(stage, batches, numbers);
}

// Requests that only share a round do not share its failure: a request whose keys fit is served.
void Operations::LookupOneByOne(const Round& round) {
  Round alone = round;
  alone.others.clear();
  for (const RoundPart& part : round.parts) {
    alone.parts = {part};
    alone.waiters = {part.ticket};
    Lookup(alone);
  }
}

Operations::PooledNumbers Operations::PooledBy(std::span<const TableBatch> batches) {
  PooledNumbers numbers;
  for (std::size_t t = 0; t < batches.size(); ++t) {
    const TableBatch& batch = batches[t];
    std::uint32_t bag = 0;
    std::size_t at =
        (numbers.size + PooledNumbers::kAlign - 1) / PooledNumbers::kAlign * PooledNumbers::kAlign;
    numbers.first.push_back(at);
    for (const RoundPart& part : batch.round.parts) {
      if (!IsMine(part.ticket)) continue;
      const auto& lookup = tickets_.Get<LookupRequest>(part.ticket.number);
      LookupRun* run = numbers.runs.empty() ? nullptr : &numbers.runs.back();
      if (run == nullptr || !run->GoesOnWith(lookup, at)) {
        run = &numbers.runs.emplace_back(LookupRun{.type = lookup.type, .first = at});
        run->memory->values = lookup.place;
        run->placed = lookup.place != nullptr;
        run->reachable = device_.SharesHostMemory() || lookup.place_on_device;
      }
      const std::size_t index = numbers.runs.size() - 1;
      numbers.run_of.push_back(index);
      if (numbers.pieces.empty() || numbers.pieces.back().table != t || numbers.pieces.back().run != index) {
        numbers.pieces.push_back({.table = t, .first = bag, .last = bag, .run = index, .at = at});
      }
      bag += part.samples * batch.table.info.options.slots;
      numbers.pieces.back().last = bag;
      at += part.samples * WidthOf(batch.table);
      run->end = numbers.size = at;
    }
  }
  return numbers;
}

// Memory of different owners may be side by side, and does not end together. What lies between two places is
// somebody else's.
bool Operations::LookupRun::GoesOnWith(const LookupRequest& lookup, std::size_t at) const {
  if (lookup.type != type) return false;
  if (!placed || lookup.place == nullptr) return !placed && lookup.place == nullptr;
  const std::shared_ptr<std::byte[]>& first_place = memory->values;
  return at == end && !first_place.owner_before(lookup.place) && !lookup.place.owner_before(first_place) &&
         lookup.place.get() == values() + bytes();
}

void Operations::AnswerWithPooled(Stage& stage, std::span<const TableBatch> batches, PooledNumbers& numbers) {
  auto run_of = numbers.run_of.begin();
  for (std::size_t t = 0; t < batches.size(); ++t) {
    std::size_t at = numbers.first[t];
    for (const RoundPart& part : batches[t].round.parts) {
      if (!IsMine(part.ticket)) continue;
      Request request = tickets_.Take(part.ticket.number);
      LookupRequest& lookup = std::get<LookupRequest>(request);
      const LookupRun& run = numbers.runs[*run_of++];
      const std::size_t size = part.samples * WidthOf(batches[t].table);
      const std::byte* const values = run.values() + (at - run.first) * BytesOf(run.type);
      at += size;
      run.memory->reservations.push_back(std::move(lookup.answer_reservation));
      stage.AnswerLater([done = std::move(lookup.done),
                         answer = PooledValues{
                             {run.memory, values}, size, run.type, batches[t].table.version()}]() mutable {
        done(std::move(answer));
      });
      stage.Keep(std::move(request));
    }
  }
}

void Operations::PoolMine(Stage& stage, std::span<const TableBatch> batches,
                          std::span<const TableWork::Share> gathered, PooledNumbers& numbers) {
  std::vector<LookupRun>& runs = numbers.runs;
  for (LookupRun& run : runs) {
    if (!run.placed)
      run.memory->values = arrays_.TakeOfDevice<std::byte>(run.bytes());  // written whole below
  }
  if (PoolsInPlace(batches, numbers)) return PoolInPlace(stage, batches, gathered, numbers);
  // A single run is pooled as what it is to become, if all tables can be, and where it is to lie.
  const bool single = runs.size() == 1 && std::ranges::all_of(batches, [&](const TableBatch& batch) {
                        return work_.TypeOfPooled(batch.table, runs.front().type) == runs.front().type;
                      });
  const DataType type = single ? runs.front().type : DataType::kFloat32;
  void* const where = single && runs.front().reachable ? static_cast<void*>(runs.front().values())
                                                       : stage.pooled().Reserve(numbers.size);
  const auto pooled_of = [&](std::size_t t) {
    return Numbers{static_cast<std::byte*>(where) + numbers.first[t] * BytesOf(type), type};
  };
  Stream* pooled = nullptr;  // in whose order all is pooled
  for (std::size_t t = 0; t < batches.size(); ++t) {
    pooled = &work_.Pool(batches[t].table, batches[t].bags(), stage.travel_arrays(t), pooled_of(t));
  }
  stage.stream().OrderAfter(*pooled);
  if (type == DataType::kFloat32) {
    for (std::size_t t = 0; t < batches.size(); ++t) {
      DivideMine(stage, batches[t], gathered[t].batch, 0, batches[t].bags_of(collective_.rank()),
                 static_cast<float*>(pooled_of(t).data));
    }
  }
  BringToHost(stage, {where, type}, runs);
}

bool Operations::PoolsInPlace(std::span<const TableBatch> batches, const PooledNumbers& numbers) const {
  return work_.CanPoolRanges() && std::ranges::all_of(numbers.runs, &LookupRun::reachable) &&
         std::ranges::all_of(numbers.pieces, [&](const PooledPiece& piece) {
           const DataType type = numbers.runs[piece.run].type;
           return work_.TypeOfPooled(batches[piece.table].table, type) == type;
         });
}

void Operations::PoolInPlace(Stage& stage, std::span<const TableBatch> batches,
                             std::span<const TableWork::Share> gathered, const PooledNumbers& numbers) {
  for (const PooledPiece& piece : numbers.pieces) {
    if (piece.first == piece.last) continue;
    const TableBatch& batch = batches[piece.table];
    const LookupRun& run = numbers.runs[piece.run];
    std::byte* const to = run.values() + (piece.at - run.first) * BytesOf(run.type);
    stage.stream().OrderAfter(work_.PoolRange(batch.table, piece.first, piece.last, {to, run.type}));
    if (run.type != DataType::kFloat32) continue;  // nothing is divided
    DivideMine(stage, batch, gathered[piece.table].batch, piece.first, piece.last,
               reinterpret_cast<float*>(to));
  }
}

void Operations::DivideMine(Stage& stage, const TableBatch& batch, const BatchView& view, std::size_t first,
                            std::size_t last, float* pooled) {
  const auto me = static_cast<std::size_t>(Value(collective_.rank()));
  const std::vector<std::size_t>& bags_of = batch.layout.bags_of;
  const std::size_t first_bag =
      std::accumulate(bags_of.begin(), bags_of.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
  const float* weights = view.weights.empty() ? nullptr : view.weights.data();
  batch.table.shard->DivideBags(stage.stream(), view.offsets.subspan(first_bag + first, last - first + 1),
                                weights, pooled);
}

void Operations::BringToHost(Stage& stage, Numbers pooled, const std::vector<LookupRun>& runs) {
  std::size_t narrow_bytes = 0;  // the most of a run that is to be converted
  for (const LookupRun& run : runs) {
    if (run.type != pooled.type && !run.reachable) narrow_bytes = std::max(narrow_bytes, run.bytes());
  }
  // A device with memory of its own converts there, one run after the other, so that fewer bytes travel.
  std::byte* const there = stage.narrow().Reserve(narrow_bytes);
  for (const LookupRun& run : runs) {
    const std::byte* result = static_cast<std::byte*>(pooled.data) + run.first * BytesOf(pooled.type);
    if (run.type != pooled.type) {
      std::byte* const to = run.reachable ? run.values() : there;
      stage.stream().Convert({result, pooled.type}, run.size(), {to, run.type});
      result = to;
    }
    stage.stream().Copy(run.values(), result, run.bytes());
  }
}

}  // namespace slotwise
