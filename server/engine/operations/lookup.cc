#include "server/engine/operations/lookup.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

// Returns the pooled numbers of one sample.
std::size_t WidthOf(const Table& table) {
  return std::size_t{table.info.options.slots} * table.info.options.dim;
}

// The memory of answers, and its reservations, which end with the last of these answers.
struct AnswerMemory {
  std::vector<Reservation> reservations;
  std::shared_ptr<std::byte[]> values;
};
// Neighbouring lookups of this rank whose answers share one type and one piece of memory. [first, end) is
// their place among all pooled numbers.
struct LookupRun {
  DataType type = DataType::kFloat32;
  std::size_t first = 0;
  std::size_t end = 0;
  bool placed = false;     // at the lookups' `place`
  bool reachable = false;  // the device can write there
  std::shared_ptr<AnswerMemory> memory = std::make_shared<AnswerMemory>();

  std::byte* values() const { return memory->values.get(); }
  std::size_t size() const { return end - first; }
  std::size_t bytes() const { return size() * BytesOf(type); }
  // Returns whether a lookup's numbers, which are pooled at `at`, may continue the run.
  bool GoesOnWith(const LookupRequest& lookup, std::size_t at) const;
};
// Consecutive bags [first, last) of a table in a run, whose numbers begin at `at`.
struct PooledPiece {
  std::size_t table = 0;  // its place in the round
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::size_t run = 0;
  std::size_t at = 0;
};
// The pooled numbers of this rank's lookups, one table after the other.
struct PooledNumbers {
  std::vector<std::size_t> first;  // [tables] where a table's numbers begin, at a multiple of kAlign
  std::size_t size = 0;
  std::vector<LookupRun> runs;
  std::vector<std::size_t> run_of;  // the run of each lookup, in order
  std::vector<PooledPiece> pieces;

  // With kAlign, each table's numbers begin at a multiple of 64 bytes.
  static constexpr std::size_t kAlign = 32;
};
// Lookups of several different tables that are served together. By table:
struct TogetherBatches {
  std::vector<TableBatch> batches;
  std::vector<TableWork::Share> gathered;
  std::vector<FoundBatch*> rows;  // of the batches' keys, once prepared
};
// The lookups of one round.
class LookupRounds {
 public:
  explicit LookupRounds(RoundContext& context) : context_(context) {}

  void Run(const Round& round);
  // Records the keys that got rows in one record, whether the lookups inserted together or one by one.
  void RecordNewKeys();

 private:
  // Serves lookups of several tables in one mode, with as few waits for the device and the other ranks as for
  // one table. REQUIRES: no table twice.
  void LookupTogether(std::span<const Round* const> rounds);
  void LookupOneByOne(const Round& round);
  // Returns whether lookups give absent keys rows.
  bool Inserts(const Round& round) const;
  // Prepare the rows of each batch.
  Status FindRows(TogetherBatches& of);
  Status InsertRows(TogetherBatches& of);
  PooledNumbers PooledBy(std::span<const TableBatch> batches);
  // Pools this rank's samples of the prepared batches over all ranks, into the runs' values, which are filled
  // when the stage's stream is done.
  void PoolMine(Stage& stage, const TogetherBatches& of, PooledNumbers& numbers);
  // Returns whether each piece can be pooled directly into its run's memory.
  bool CanPoolInPlace(std::span<const TableBatch> batches, const PooledNumbers& numbers) const;
  // REQUIRES: CanPoolInPlace.
  void PoolInPlace(Stage& stage, const TogetherBatches& of, const PooledNumbers& numbers);
  // Divides this rank's pooled bags [first, last) of a table as its combiner says.
  void DivideMine(Stage& stage, const TableBatch& batch, const BatchView& view, std::size_t first,
                  std::size_t last, float* pooled);
  // Writes the runs' values. `pooled`, in device memory, has all numbers of the runs.
  void BringToHost(Stage& stage, Numbers pooled, const std::vector<LookupRun>& runs);
  // Answers this rank's lookups when the device is done.
  void AnswerWithPooled(Stage& stage, std::span<const TableBatch> batches, PooledNumbers& numbers);

  TableWork::RoomFor RoomForNewKeys(std::size_t of_tables) const;
  void NoteNewKeysOf(const Table& table, InsertedBatch& batch);

  RoundContext& context_;
  std::vector<Lookup::Inserted> new_keys_;  // on this rank
};

void LookupRounds::Run(const Round& round) {
  // Lookups that share a round may be of one table in two modes, or with weights and without.
  std::vector<const Round*> together;
  std::set<TableId> tables;
  round.ForEachTable([&](const Round& share) {
    if (tables.contains(share.table) ||
        (!together.empty() &&
         (together.back()->mode != share.mode || Inserts(*together.back()) != Inserts(share)))) {
      LookupTogether(together);
      together.clear();
      tables.clear();
    }
    together.push_back(&share);
    tables.insert(share.table);
  });
  LookupTogether(together);
}

void LookupRounds::LookupTogether(std::span<const Round* const> rounds) {
  const Round& first = *rounds.front();
  TogetherBatches of;
  for (const Round* round : rounds) of.batches.push_back(context_.BagsOf(*round));
  Stage& stage = context_.stages.Next();
  of.gathered = stage.gather().Gather(of.batches, context_.carried);
  const bool inserts = Inserts(first);
  const Status prepared = inserts ? InsertRows(of) : FindRows(of);
  if (!prepared.ok()) {
    stage.Close(context_.device.WorkStream());
    if (rounds.size() > 1) {
      for (const Round* const& round : rounds) LookupTogether({&round, 1});
      return;
    }
    if (first.parts.size() > 1) return LookupOneByOne(first);
    return context_.AnswerMine<LookupRequest>(
        first, [&](LookupRequest& request) { request.done(prepared); }, &stage);
  }
  if (inserts) context_.stages.FinishDone();  // the agreement has waited for all ranks' devices
  PooledNumbers numbers = PooledBy(of.batches);
  PoolMine(stage, of, numbers);
  AnswerWithPooled(stage, of.batches, numbers);
}

// In a table with an admission, pushes alone insert.
bool LookupRounds::Inserts(const Round& round) const {
  return round.mode == LookupMode::kTrain && !context_.tables.Get(round.table)->info.options.admits();
}

Status LookupRounds::FindRows(TogetherBatches& of) {
  for (std::size_t t = 0; t < of.batches.size(); ++t) {
    const AbsentRows absent = of.batches[t].table.info.options.admission.absent;
    of.gathered[t].or_initial =
        of.batches[t].round.mode == LookupMode::kTrain && absent == AbsentRows::kInitial;
  }
  const auto found = context_.work.Prepare(of.gathered);
  if (!found.ok()) return found.status();
  for (FoundBatch& batch : *found) of.rows.push_back(&batch);
  return {};
}

Status LookupRounds::InsertRows(TogetherBatches& of) {
  const auto inserted =
      context_.work.PrepareAndInsert(of.gathered, PrepareFor::kInsert, RoomForNewKeys(of.batches.size()));
  if (!inserted.ok()) return inserted.status();
  for (std::size_t t = 0; t < of.batches.size(); ++t) {
    of.rows.push_back(&(*inserted)[t]);
    NoteNewKeysOf(of.batches[t].table, (*inserted)[t]);
  }
  return {};
}

// Requests that only share a round do not share its failure: each request whose keys fit is served.
void LookupRounds::LookupOneByOne(const Round& round) {
  Round alone = round;
  alone.others.clear();
  for (const RoundPart& part : round.parts) {
    alone.parts = {part};
    alone.waiters = {part.ticket};
    Run(alone);
  }
}

PooledNumbers LookupRounds::PooledBy(std::span<const TableBatch> batches) {
  PooledNumbers numbers;
  for (std::size_t t = 0; t < batches.size(); ++t) {
    const TableBatch& batch = batches[t];
    std::uint32_t bag = 0;
    std::size_t at =
        (numbers.size + PooledNumbers::kAlign - 1) / PooledNumbers::kAlign * PooledNumbers::kAlign;
    numbers.first.push_back(at);
    for (const RoundPart& part : batch.round.parts) {
      if (!context_.IsMine(part.ticket)) continue;
      const auto& lookup = context_.tickets.Get<LookupRequest>(part.ticket.number);
      LookupRun* run = numbers.runs.empty() ? nullptr : &numbers.runs.back();
      if (run == nullptr || !run->GoesOnWith(lookup, at)) {
        run = &numbers.runs.emplace_back(LookupRun{.type = lookup.type, .first = at});
        run->memory->values = lookup.place;
        run->placed = lookup.place != nullptr;
        run->reachable = context_.device.SharesHostMemory() || lookup.place_on_device;
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

// Adjacent memory may have different owners; memory between two places belongs to others.
bool LookupRun::GoesOnWith(const LookupRequest& lookup, std::size_t at) const {
  if (lookup.type != type) return false;
  if (!placed || lookup.place == nullptr) return !placed && lookup.place == nullptr;
  const std::shared_ptr<std::byte[]>& first_place = memory->values;
  return at == end && !first_place.owner_before(lookup.place) && !lookup.place.owner_before(first_place) &&
         lookup.place.get() == values() + bytes();
}

void LookupRounds::AnswerWithPooled(Stage& stage, std::span<const TableBatch> batches,
                                    PooledNumbers& numbers) {
  auto run_of = numbers.run_of.begin();
  for (std::size_t t = 0; t < batches.size(); ++t) {
    std::size_t at = numbers.first[t];
    for (const RoundPart& part : batches[t].round.parts) {
      if (!context_.IsMine(part.ticket)) continue;
      Request request = context_.tickets.Take(part.ticket.number);
      LookupRequest& lookup = request.As<LookupRequest>();
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

void LookupRounds::PoolMine(Stage& stage, const TogetherBatches& of, PooledNumbers& numbers) {
  const std::vector<TableBatch>& batches = of.batches;
  std::vector<LookupRun>& runs = numbers.runs;
  for (LookupRun& run : runs) {
    if (!run.placed)
      run.memory->values = context_.arrays.TakeOfDevice<std::byte>(run.bytes());  // overwritten below
  }
  if (CanPoolInPlace(batches, numbers)) return PoolInPlace(stage, of, numbers);
  // A single run is pooled directly in its final type if that is possible for every table's bags, and
  // directly into its memory if the device can write there.
  const bool single =
      runs.size() == 1 && std::ranges::all_of(batches, [&](const TableBatch& batch) {
        return context_.work.TypeOfPooled(batch.table, runs.front().type) == runs.front().type;
      });
  const DataType type = single ? runs.front().type : DataType::kFloat32;
  void* const where = single && runs.front().reachable ? static_cast<void*>(runs.front().values())
                                                       : stage.pooled().Reserve(numbers.size);
  const auto pooled_of = [&](std::size_t t) {
    return Numbers{static_cast<std::byte*>(where) + numbers.first[t] * BytesOf(type), type};
  };
  Stream* pooled = nullptr;  // orders the pooling
  for (std::size_t t = 0; t < batches.size(); ++t) {
    pooled = &context_.work.Pool(batches[t].table, *of.rows[t], batches[t].bags(),
                                 stage.distribution_arrays(t), pooled_of(t));
  }
  stage.stream().OrderAfter(*pooled);
  if (type == DataType::kFloat32) {
    for (std::size_t t = 0; t < batches.size(); ++t) {
      DivideMine(stage, batches[t], of.gathered[t].batch, 0, batches[t].bags_of(context_.collective.rank()),
                 static_cast<float*>(pooled_of(t).data));
    }
  }
  BringToHost(stage, {where, type}, runs);
}

bool LookupRounds::CanPoolInPlace(std::span<const TableBatch> batches, const PooledNumbers& numbers) const {
  return context_.work.CanPoolRanges() && std::ranges::all_of(numbers.runs, &LookupRun::reachable) &&
         std::ranges::all_of(numbers.pieces, [&](const PooledPiece& piece) {
           const DataType type = numbers.runs[piece.run].type;
           return context_.work.TypeOfPooled(batches[piece.table].table, type) == type;
         });
}

void LookupRounds::PoolInPlace(Stage& stage, const TogetherBatches& of, const PooledNumbers& numbers) {
  for (const PooledPiece& piece : numbers.pieces) {
    if (piece.first == piece.last) continue;
    const LookupRun& run = numbers.runs[piece.run];
    std::byte* const to = run.values() + (piece.at - run.first) * BytesOf(run.type);
    of.rows[piece.table]->Pool({to, run.type}, {piece.first, piece.last});
    stage.stream().OrderAfter(context_.device.WorkStream());
    if (run.type != DataType::kFloat32) continue;  // its sums need no division
    DivideMine(stage, of.batches[piece.table], of.gathered[piece.table].batch, piece.first, piece.last,
               reinterpret_cast<float*>(to));
  }
}

void LookupRounds::DivideMine(Stage& stage, const TableBatch& batch, const BatchView& view, std::size_t first,
                              std::size_t last, float* pooled) {
  const auto me = static_cast<std::size_t>(Value(context_.collective.rank()));
  const std::vector<std::size_t>& bags_of = batch.layout.bags_of;
  const std::size_t first_bag =
      std::accumulate(bags_of.begin(), bags_of.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
  const float* weights = view.weights.empty() ? nullptr : view.weights.data();
  batch.table.shard->DivideBags(stage.stream(), view.offsets.subspan(first_bag + first, last - first + 1),
                                weights, pooled);
}

void LookupRounds::BringToHost(Stage& stage, Numbers pooled, const std::vector<LookupRun>& runs) {
  std::size_t narrow_bytes = 0;  // of the largest run to convert
  for (const LookupRun& run : runs) {
    if (run.type != pooled.type && !run.reachable) narrow_bytes = std::max(narrow_bytes, run.bytes());
  }
  // A device with memory of its own converts one run after the other there, so that fewer bytes travel.
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

TableWork::RoomFor LookupRounds::RoomForNewKeys(std::size_t of_tables) const {
  if (!context_.log.on()) return {};
  return [this, of_tables](std::uint64_t new_rows, std::uint64_t bytes_of_evictions) {
    if (new_rows + bytes_of_evictions == 0) return Status();
    constexpr std::uint64_t kHead = 32;  // bounds a table's bytes beside its new keys
    // The new keys of the round's earlier lookups go into the same record.
    std::uint64_t bytes = kSmallRecord + of_tables * kHead + new_rows * sizeof(Key) + bytes_of_evictions;
    for (const Lookup::Inserted& inserted : new_keys_) {
      bytes += kHead + inserted.keys.size() * sizeof(Key);
      for (const Eviction& eviction : inserted.evicted) bytes += EvictionBytes(eviction.spared.size());
    }
    return context_.log.Reserve(bytes);
  };
}

void LookupRounds::NoteNewKeysOf(const Table& table, InsertedBatch& batch) {
  if (!context_.work.inserted_new_keys()) return;
  context_.log.NoteChange(context_.round);
  if (!context_.log.on()) return;
  Lookup::Inserted& inserted = new_keys_.emplace_back(table.info.id, batch.InsertedKeys());
  for (const Eviction& eviction : context_.work.evictions()) {
    if (eviction.table == table.info.id) inserted.evicted.push_back(eviction);
  }
}

void LookupRounds::RecordNewKeys() {
  if (new_keys_.empty()) return;
  const bool evicted =
      std::ranges::any_of(new_keys_, [](const auto& inserted) { return !inserted.evicted.empty(); });
  context_.Record(evicted ? Lookup::kWithEvictions : Lookup::kPlain,
                  [&] { return Lookup::Write(std::move(new_keys_), evicted); });
}

}  // namespace

void Lookup::Run(RoundContext& context, const Round& round) {
  LookupRounds lookups(context);
  lookups.Run(round);
  lookups.RecordNewKeys();
}

std::vector<JournalPiece> Lookup::Write(std::vector<Inserted> tables, bool with_evictions) {
  RecordWriter writer;
  writer.Put(static_cast<std::uint32_t>(tables.size()));
  for (auto& [table, keys, evicted] : tables) {
    if (with_evictions) PutEvictions(writer, evicted);
    writer.Put(table);
    writer.Put(static_cast<std::uint64_t>(keys.size()));
    const JournalPiece piece = OwnedPiece(std::move(keys));
    writer.PutArray(piece.bytes, piece.owner);
  }
  return writer.Finish();
}

Result<Lookup::Record> Lookup::Read(RecordKind kind, Rank /*rank*/, std::span<const std::byte> body) {
  Record record;
  RecordReader reader(body);
  const std::uint32_t tables = reader.GetCount(sizeof(std::uint64_t));
  for (std::uint32_t t = 0; t < tables && !reader.failed(); ++t) {
    std::vector<RecordedEviction> evicted;
    if (kind == kWithEvictions) evicted = GetEvictions(reader);
    const auto table = reader.Get<TableId>();
    const auto count = reader.Get<std::uint64_t>();
    record.push_back({table, reader.GetArray<Key>(count), std::move(evicted)});
  }
  if (Status end = reader.End(); !end.ok()) return end;
  return record;
}

Status Lookup::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  const auto insert = [&](const NewKeys& recorded) -> Status {
    if (Status there = CheckThereIs(context.tables, recorded.table); !there.ok()) return there;
    if (recorded.keys.empty()) return {};
    const Table& table = *context.tables.Get(recorded.table);
    const BatchView batch = context.gather.GatherKeys(recorded.table, recorded.keys);
    return table.shard->PrepareInsert(batch).Insert(table.steps + 1).status();
  };
  const auto alike = [](const NewKeys& one, const NewKeys& other) {
    return one.table == other.table && one.evicted == other.evicted;
  };
  // Every rank has recorded the same tables, in the same order, and what comes later may evict.
  for (const Record& record : of_ranks) {
    if (!std::ranges::equal(record, of_ranks.front(), alike))
      return DataLoss("the ranks have recorded different lookups");
  }
  for (std::size_t t = 0; t < of_ranks.front().size(); ++t) {
    std::vector<std::span<const RecordedEviction>> evictions;
    for (const Record& record : of_ranks) evictions.emplace_back(record[t].evicted);
    if (Status evicted = ReplayEvictions(context, evictions); !evicted.ok()) return evicted;
    for (const Record& record : of_ranks) {
      if (Status inserted = insert(record[t]); !inserted.ok()) return inserted;
    }
  }
  return {};
}

}  // namespace slotwise::operations
