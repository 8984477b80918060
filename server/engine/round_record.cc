#include "server/engine/round_record.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "server/durability/table_options_text.h"

namespace slotwise {
namespace {

constexpr std::size_t kAlign = 8;
constexpr std::array<std::byte, kAlign> kZeros{};

// Returns a piece that owns its bytes.
template <class T>
JournalPiece Owned(std::vector<T> values) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return {std::as_bytes(std::span(*owner)), owner};
}

std::size_t Padding(std::size_t bytes) { return (kAlign - bytes % kAlign) % kAlign; }

// Puts numbers and arrays one behind the other; arrays at multiples of 8, without a copy.
class RecordWriter {
 public:
  template <class T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    numbers_.insert(numbers_.end(), bytes.begin(), bytes.end());
  }

  void PutArray(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
    EndNumbers();
    size_ += bytes.size();
    if (!bytes.empty()) pieces_.push_back({bytes, std::move(owner)});
    Pad();
  }

  std::vector<JournalPiece> Finish() {
    EndNumbers();
    return std::move(pieces_);
  }

 private:
  void EndNumbers() {
    if (numbers_.empty()) return;
    size_ += numbers_.size();
    pieces_.push_back(Owned(std::exchange(numbers_, {})));
    Pad();
  }
  void Pad() {
    const std::size_t padding = Padding(size_);
    if (padding > 0) pieces_.push_back({std::span(kZeros).first(padding), nullptr});
    size_ += padding;
  }

  std::vector<std::byte> numbers_;
  std::vector<JournalPiece> pieces_;
  std::size_t size_ = 0;
};

// Takes them out again. Once something was not there, all that follows is nothing.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T Get() {
    std::array<std::byte, sizeof(T)> value{};
    if (const auto from = Take(sizeof(T)); from.size() == sizeof(T))
      std::memcpy(value.data(), from.data(), sizeof(T));
    return std::bit_cast<T>(value);
  }

  template <class T>
  std::span<const T> GetArray(std::uint64_t count) {
    Take(Padding(at_));
    if (count > bytes_.size() / sizeof(T)) Fail();
    const auto from = Take(failed() ? 0 : count * sizeof(T));
    Take(Padding(at_));
    // The bytes are aligned, and a T has no other needs.
    return {reinterpret_cast<const T*>(from.data()), from.size() / sizeof(T)};
  }

  // A count of things that take at least `bytes` each of what is left.
  std::uint32_t GetCount(std::size_t bytes) {
    const auto count = Get<std::uint32_t>();
    if (count > (bytes_.size() - at_) / bytes) Fail();
    return failed() ? 0 : count;
  }

  void Fail() { failed_at_ = failed_at_.value_or(at_); }
  bool failed() const { return failed_at_.has_value(); }
  std::size_t place() const { return failed_at_.value_or(at_); }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::span<const std::byte> Take(std::size_t size) {
    if (failed() || size > bytes_.size() - at_) {
      Fail();
      return {};
    }
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::optional<std::size_t> failed_at_;
};

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

// Puts whether a share of a push at rates has one, and the rate.
void PutRate(RecordWriter& writer, const std::optional<float>& rate) {
  writer.Put(std::uint32_t{rate ? 1U : 0U});
  writer.Put(rate.value_or(0));
}

std::optional<float> GetRate(RecordReader& reader) {
  const bool there = reader.Get<std::uint32_t>() != 0;
  const auto rate = reader.Get<float>();
  return there ? std::optional(rate) : std::nullopt;
}

void GetBatches(RecordReader& reader, Rank me, RoundRecord& record) {
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
    if (record.kind == RecordKind::kPushAtRates) share.learning_rate = GetRate(reader);
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

void GetNewKeys(RecordReader& reader, RoundRecord& record) {
  const std::uint32_t tables = reader.GetCount(sizeof(std::uint64_t));
  for (std::uint32_t t = 0; t < tables && !reader.failed(); ++t) {
    const TableId table{reader.Get<std::uint32_t>()};
    const auto count = reader.Get<std::uint64_t>();
    record.new_keys.push_back({table, reader.GetArray<Key>(count)});
  }
}

}  // namespace

RecordKind KindOfPush(const Round& round) {
  bool at_rates = false;
  round.ForEachTable([&](const Round& share) { at_rates = at_rates || share.learning_rate.has_value(); });
  return at_rates ? RecordKind::kPushAtRates : RecordKind::kPush;
}

std::vector<JournalPiece> RecordBatches(
    const Round& round, Rank me, std::span<const std::uint64_t> steps,
    const std::function<std::shared_ptr<const BatchPart>(const Ticket&)>& arrays_of) {
  const bool at_rates = KindOfPush(round) == RecordKind::kPushAtRates;
  RecordWriter writer;
  writer.Put(round.step.session);
  writer.Put(round.step.number);
  writer.Put(round.step.epoch);
  writer.Put(round.step.parts);
  writer.Put(round.step.tables);
  writer.Put(std::uint32_t{round.with_state ? 1U : 0U});
  writer.Put(static_cast<std::uint32_t>(steps.size()));
  std::size_t place = 0;
  round.ForEachTable([&](const Round& share) {
    writer.Put(Value(share.table));
    writer.Put(steps[place++]);
    if (at_rates) PutRate(writer, share.learning_rate);
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
  constexpr std::uint64_t kHead = 64;  // of a record, of a share, of a part's arrays
  constexpr std::uint64_t kPads = 64;  // behind a part's four arrays
  std::uint64_t bytes = kHead;
  round.ForEachTable([&](const Round& share) {
    bytes += kHead + share.parts.size() * kPartBytes;
    for (const RoundPart& part : share.parts) {
      if (part.ticket.rank == me) bytes += kHead + kPads + array_bytes_of(part.ticket);
    }
  });
  return bytes;
}

std::vector<JournalPiece> RecordNewKeys(std::vector<NewKeys> tables) {
  RecordWriter writer;
  writer.Put(static_cast<std::uint32_t>(tables.size()));
  for (NewKeys& table : tables) {
    writer.Put(Value(table.table));
    writer.Put(static_cast<std::uint64_t>(table.keys.size()));
    const JournalPiece keys = Owned(std::move(table.keys));
    writer.PutArray(keys.bytes, keys.owner);
  }
  return writer.Finish();
}

std::vector<JournalPiece> RecordCreateTable(TableId table, const TableOptions& options,
                                            std::uint64_t lineage) {
  const std::string text = ToText(options);
  RecordWriter writer;
  writer.Put(Value(table));
  writer.Put(lineage);
  writer.Put(static_cast<std::uint32_t>(text.size()));
  const JournalPiece bytes = Owned(std::vector<char>(text.begin(), text.end()));
  writer.PutArray(bytes.bytes, bytes.owner);
  return writer.Finish();
}

std::vector<JournalPiece> RecordDropTable(TableId table) {
  RecordWriter writer;
  writer.Put(Value(table));
  return writer.Finish();
}

std::vector<JournalPiece> RecordSetLearningRate(TableId table, float learning_rate) {
  RecordWriter writer;
  writer.Put(Value(table));
  writer.Put(learning_rate);
  return writer.Finish();
}

std::vector<JournalPiece> RecordLoadCheckpoint(const CheckpointName& checkpoint, std::uint64_t lineages,
                                               std::span<const TableId> tables) {
  RecordWriter writer;
  writer.Put(lineages);
  writer.Put(checkpoint.checksum);
  writer.Put(static_cast<std::uint32_t>(checkpoint.id.size()));
  if (!tables.empty()) writer.Put(static_cast<std::uint32_t>(tables.size()));
  const JournalPiece id = Owned(std::vector<char>(checkpoint.id.begin(), checkpoint.id.end()));
  writer.PutArray(id.bytes, id.owner);
  const JournalPiece ids = Owned(std::vector<TableId>(tables.begin(), tables.end()));
  if (!tables.empty()) writer.PutArray(ids.bytes, ids.owner);
  return writer.Finish();
}

Result<RoundRecord> ReadRecord(RecordKind kind, Rank me, std::span<const std::byte> bytes) {
  RoundRecord record;
  record.kind = kind;
  RecordReader reader(bytes);
  switch (kind) {
    case RecordKind::kPush:
    case RecordKind::kPushAtRates:
    case RecordKind::kImport:
    case RecordKind::kErase:
      GetBatches(reader, me, record);
      break;
    case RecordKind::kNewKeys:
      GetNewKeys(reader, record);
      break;
    case RecordKind::kCreateTable: {
      record.table = TableId{reader.Get<std::uint32_t>()};
      record.lineage = reader.Get<std::uint64_t>();
      const auto text = reader.GetArray<char>(reader.Get<std::uint32_t>());
      if (reader.failed()) break;
      const Result<TableOptions> options = TableOptionsFromText({text.data(), text.size()});
      if (!options.ok()) return options.status();
      record.options = *options;
      break;
    }
    case RecordKind::kDropTable:
      record.table = TableId{reader.Get<std::uint32_t>()};
      break;
    case RecordKind::kSetLearningRate:
      record.table = TableId{reader.Get<std::uint32_t>()};
      record.learning_rate = reader.Get<float>();
      break;
    case RecordKind::kLoadCheckpoint:
    case RecordKind::kLoadTables: {
      record.lineage = reader.Get<std::uint64_t>();
      record.checkpoint.checksum = reader.Get<std::uint64_t>();
      const auto length = reader.Get<std::uint32_t>();
      const auto tables = kind == RecordKind::kLoadTables ? reader.Get<std::uint32_t>() : 0;
      const auto id = reader.GetArray<char>(length);
      record.checkpoint.id.assign(id.begin(), id.end());
      const auto ids = reader.GetArray<TableId>(tables);
      record.loaded.assign(ids.begin(), ids.end());
      break;
    }
    default:
      return InvalidArgument("a record of kind " + std::to_string(static_cast<std::uint32_t>(kind)) +
                             ", which this version does not know");
  }
  if (!reader.failed() && reader.at_end()) return record;
  // What ends in numbers is padded.
  if (!reader.failed()) {
    reader.GetArray<std::byte>(0);
    if (reader.at_end()) return record;
  }
  return InvalidArgument("the record's bytes end, or do not fit together, at byte " +
                         std::to_string(reader.place()) + " of its body");
}

}  // namespace slotwise
