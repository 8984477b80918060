#include "server/engine/operations/recorded_batches.h"

#include <optional>
#include <utility>

#include "server/engine/operations/record_bytes.h"

namespace slotwise {
namespace {

constexpr std::size_t kPartBytes = 6 * sizeof(std::uint32_t);

void PutPart(RecordWriter& writer, const RoundPart& part) {
  writer.Put(static_cast<std::uint32_t>(Value(part.ticket.rank)));
  writer.Put(part.part);
  writer.Put(part.samples);
  writer.Put(part.keys);
  writer.Put(part.body);
  writer.Put(std::uint32_t{part.weighted ? 1U : 0U});
}

RecordedPart GetPart(RecordReader& reader) {
  RecordedPart part;
  for (std::uint32_t* field :
       {&part.rank, &part.part, &part.samples, &part.keys, &part.body, &part.weighted}) {
    *field = reader.Get<std::uint32_t>();
  }
  return part;
}

void PutArrays(RecordWriter& writer, const std::shared_ptr<const BatchPart>& part) {
  const std::uint64_t value_bytes = part->values.bytes();
  writer.Put(static_cast<std::uint32_t>(part->value_type));
  writer.Put(static_cast<std::uint32_t>(part->offsets.size()));
  writer.Put(value_bytes);
  writer.PutArray(std::as_bytes(part->keys.span()), part);
  writer.PutArray(std::as_bytes(part->offsets.span()), part);
  writer.PutArray(std::as_bytes(part->weights.span()), part);
  writer.PutArray(std::as_bytes(part->values.span()), part);
}

RecordedArrays GetArrays(RecordReader& reader, const RecordedPart& part) {
  RecordedArrays arrays;
  const auto type = reader.Get<std::uint32_t>();
  const auto offsets = reader.Get<std::uint32_t>();
  const auto value_bytes = reader.Get<std::uint64_t>();
  if (type > static_cast<std::uint32_t>(DataType::kBFloat16)) reader.Fail();
  arrays.value_type = static_cast<DataType>(type);
  arrays.keys = reader.GetArray<Key>(part.keys);
  arrays.offsets = reader.GetArray<std::uint32_t>(offsets);
  arrays.weights = reader.GetArray<float>(part.weighted != 0 ? part.keys : 0);
  arrays.values = reader.GetArray<std::byte>(value_bytes);
  return arrays;
}

// Writes whether a share of a push has a rate of its own, and the rate.
void PutRate(RecordWriter& writer, const std::optional<float>& rate) {
  writer.Put(std::uint32_t{rate ? 1U : 0U});
  writer.Put(rate.value_or(0));
}

std::optional<float> GetRate(RecordReader& reader) {
  const bool there = reader.Get<std::uint32_t>() != 0;
  const auto rate = reader.Get<float>();
  return there ? std::optional(rate) : std::nullopt;
}

void GetBatches(RecordReader& reader, Rank me, bool with_rates, RecordedBatches& record) {
  record.step.session = reader.Get<std::uint64_t>();
  record.step.number = reader.Get<std::uint64_t>();
  record.step.epoch = reader.Get<std::uint64_t>();
  record.step.parts = reader.Get<std::uint32_t>();
  record.step.tables = reader.Get<std::uint32_t>();
  record.with_state = reader.Get<std::uint32_t>() != 0;
  const std::uint32_t shares = reader.GetCount(sizeof(std::uint64_t));
  for (std::uint32_t s = 0; s < shares && !reader.failed(); ++s) {
    RecordedShare share;
    share.table = TableId{reader.Get<std::uint32_t>()};
    share.steps = reader.Get<std::uint64_t>();
    if (with_rates) share.learning_rate = GetRate(reader);
    const std::uint32_t parts = reader.GetCount(kPartBytes);
    for (std::uint32_t p = 0; p < parts && !reader.failed(); ++p) share.parts.push_back(GetPart(reader));
    record.shares.push_back(std::move(share));
  }
  for (const RecordedShare& share : record.shares) {
    for (const RecordedPart& part : share.parts) {
      if (reader.failed()) return;
      if (part.rank == static_cast<std::uint32_t>(Value(me)))
        record.arrays.push_back(GetArrays(reader, part));
    }
  }
}

}  // namespace

bool BringsRates(const Round& round) {
  bool some = false;
  round.ForEachTable([&](const Round& share) { some = some || share.learning_rate.has_value(); });
  return some;
}

std::vector<JournalPiece> RecordBatches(
    const Round& round, Rank me, std::span<const std::uint64_t> steps, const RecordedBeside& beside,
    const std::function<std::shared_ptr<const BatchPart>(const Ticket&)>& arrays_of) {
  RecordWriter writer;
  if (!beside.evictions.empty()) PutEvictions(writer, beside.evictions);
  writer.Put(round.step.session);
  writer.Put(round.step.number);
  writer.Put(round.step.epoch);
  writer.Put(round.step.parts);
  writer.Put(round.step.tables);
  writer.Put(std::uint32_t{beside.with_state ? 1U : 0U});
  writer.Put(static_cast<std::uint32_t>(steps.size()));
  std::size_t place = 0;
  round.ForEachTable([&](const Round& share) {
    writer.Put(Value(share.table));
    writer.Put(steps[place++]);
    if (beside.with_rates) PutRate(writer, share.learning_rate);
    writer.Put(static_cast<std::uint32_t>(share.parts.size()));
    for (const RoundPart& part : share.parts) PutPart(writer, part);
  });
  round.ForEachTable([&](const Round& share) {
    for (const RoundPart& part : share.parts) {
      if (part.ticket.rank == me) PutArrays(writer, arrays_of(part.ticket));
    }
  });
  return writer.Finish();
}

std::uint64_t RecordBytes(const Round& round, Rank me,
                          const std::function<std::uint64_t(const Ticket&)>& array_bytes_of) {
  constexpr std::uint64_t kHead = 64;  // of a record, a share, or a part's arrays
  constexpr std::uint64_t kPads = 64;  // after a part's four arrays
  std::uint64_t bytes = kHead;
  round.ForEachTable([&](const Round& share) {
    bytes += kHead + share.parts.size() * kPartBytes;
    for (const RoundPart& part : share.parts) {
      if (part.ticket.rank == me) bytes += kHead + kPads + array_bytes_of(part.ticket);
    }
  });
  return bytes;
}

Result<RecordedBatches> ReadBatches(Rank me, std::span<const std::byte> body, bool with_rates,
                                    bool with_evictions) {
  RecordedBatches record;
  RecordReader reader(body);
  if (with_evictions) record.evictions = GetEvictions(reader);
  GetBatches(reader, me, with_rates, record);
  if (Status end = reader.End(); !end.ok()) return end;
  return record;
}

Status ReplayEvictionsOf(ReplayContext& context, std::span<const RecordedBatches> of_ranks) {
  std::vector<std::span<const RecordedEviction>> evictions;
  for (const RecordedBatches& record : of_ranks) evictions.emplace_back(record.evictions);
  return ReplayEvictions(context, evictions);
}

}  // namespace slotwise
