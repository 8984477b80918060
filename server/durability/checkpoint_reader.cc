#include "server/durability/checkpoint_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/durability/row_checks.h"

namespace slotwise {
namespace {

// Indices in TableArrays::All(). The last two files are a delta's erased keys and their starts.
constexpr std::size_t kKeys = 0;
constexpr std::size_t kStarts = 1;
constexpr std::size_t kValues = 2;
constexpr std::size_t kFirstState = 3;

// Numbers are read in pieces that stay in the processor's cache until they are checked and copied.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

std::uint32_t RecordWidth(const TableOptions& options) { return RecordFloats(options); }

// A run of keys that are consecutive in a file.
struct Run {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Returns the runs of all keys in buckets of `rank`.
std::vector<Run> RunsOf(const BucketStarts& starts, const BucketOwners& owners, std::uint32_t rank) {
  std::vector<Run> runs;
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
    const Run run{.begin = starts[bucket], .end = starts[bucket + 1]};
    if (owners[bucket] != rank || run.begin == run.end) continue;
    if (!runs.empty() && runs.back().end == run.begin) {
      runs.back().end = run.end;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

// Calls `visit(begin, count)` for pieces of at most `most` keys of each run.
template <class Visit>
Status EachPiece(const std::vector<Run>& runs, std::uint64_t most, const Visit& visit) {
  for (const Run& run : runs) {
    for (std::uint64_t begin = run.begin; begin < run.end; begin += most) {
      if (Status status = visit(begin, std::min(most, run.end - begin)); !status.ok()) return status;
    }
  }
  return {};
}

}  // namespace

RankTableReader::RankTableReader(FileSystem& files, std::string folder, const TableEntry& table,
                                 std::uint32_t rank, BucketFunction bucket_of)
    : files_(&files),
      folder_(std::move(folder)),
      table_(&table),
      rank_entry_(&table.ranks[rank]),
      rank_(rank),
      order_(bucket_of),
      erased_order_(bucket_of),
      arrays_(ArraysOf(table.options, table.value_type, rank, rank_entry_->rows, rank_entry_->erased).All()) {
}

Result<RankTableReader> RankTableReader::Open(FileSystem& files, const std::string& folder,
                                              const TableEntry& table, std::uint32_t rank,
                                              BucketFunction bucket_of) {
  RankTableReader reader(files, folder + "/" + TableFolder(table.id), table, rank, bucket_of);
  auto starts = reader.ReadStarts(kStarts, reader.rank_entry_->rows);
  if (!starts.ok()) return starts.status();
  reader.starts_ = std::move(*starts);
  reader.erased_starts_.resize(kBucketCount + 1);
  if (reader.rank_entry_->erased) {
    starts = reader.ReadStarts(reader.rank_entry_->files.size() - 1, *reader.rank_entry_->erased);
    if (!starts.ok()) return starts.status();
    reader.erased_starts_ = std::move(*starts);
  }
  reader.Close();
  return reader;
}

Result<BlockReader*> RankTableReader::File(std::size_t place) {
  readers_.resize(rank_entry_->files.size());
  if (!readers_[place]) {
    auto reader = BlockReader::Open(*files_, folder_, rank_entry_->files[place]);
    if (!reader.ok()) return reader.status();
    if (Status status = reader->CheckBeginning(arrays_[place].header()); !status.ok()) return status;
    readers_[place].emplace(std::move(*reader));
  }
  return &*readers_[place];
}

Result<BucketStarts> RankTableReader::ReadStarts(std::size_t place, std::uint64_t count) {
  BucketStarts starts(kBucketCount + 1);
  const Status status = ReadArray(place, 0, sizeof(starts[0]), std::as_writable_bytes(std::span(starts)));
  if (!status.ok()) return status;
  const std::string path = PathOf(place);
  if (!AreStarts(starts) || starts.back() != count)
    return FailedPrecondition(path + " does not rise from 0 to " + std::to_string(count));
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
    if (starts[bucket] == starts[bucket + 1] || table_->owners[bucket] == rank_) continue;
    return FailedPrecondition(path + " has keys of bucket " + std::to_string(bucket) + ", which rank " +
                              std::to_string(table_->owners[bucket]) + " owned");
  }
  return starts;
}

Status RankTableReader::ReadArray(std::size_t place, std::uint64_t begin, std::uint64_t row_bytes,
                                  std::span<std::byte> bytes, Read read) {
  const auto file = File(place);
  if (!file.ok()) return file.status();
  return ((*file)->*read)(kNpyHeaderBytes + begin * row_bytes, bytes);
}

Status RankTableReader::ReadKeysOf(std::size_t place, std::uint64_t begin, std::span<Key> keys,
                                   const BucketStarts& starts, BucketOrderChecker& order) {
  if (Status status = ReadArray(place, begin, sizeof(Key), std::as_writable_bytes(keys)); !status.ok())
    return status;
  order.GoTo(begin, starts);
  const std::size_t right = order.Count(keys, starts);
  if (right == keys.size()) return {};
  return FailedPrecondition(PathOf(place) + " is not in bucket order: key " + std::to_string(begin + right) +
                            " is " + std::to_string(Value(keys[right])) +
                            ", which is of another bucket, or not above the key before it");
}

Status RankTableReader::ReadKeys(std::uint64_t begin, std::span<Key> keys) {
  return ReadKeysOf(kKeys, begin, keys, starts_, order_);
}

Status RankTableReader::ReadErased(std::uint64_t begin, std::span<Key> keys) {
  return ReadKeysOf(rank_entry_->files.size() - 2, begin, keys, erased_starts_, erased_order_);
}

Status RankTableReader::ReadRecords(std::uint64_t begin, std::span<float> records) {
  return ReadRecords(begin, records, &BlockReader::Read);
}

Status RankTableReader::ReadRecordsOn(std::uint64_t begin, std::span<float> records) {
  return ReadRecords(begin, records, &BlockReader::ReadOn);
}

Status RankTableReader::Settle() {
  for (std::optional<BlockReader>& reader : readers_) {
    if (!reader) continue;
    if (Status status = reader->Settle(); !status.ok()) return status;
  }
  return {};
}

Status RankTableReader::ReadRecords(std::uint64_t begin, std::span<float> records, Read read) {
  const TableOptions& options = table_->options;
  const std::uint32_t state = StateFloats(options.optimizer.kind, options.dim);
  if (Status status = ReadColumns(kValues, begin, 0, options.dim, records, read); !status.ok()) return status;
  const auto states = static_cast<std::uint32_t>(StatesOf(options.optimizer.kind).size());
  for (std::uint32_t i = 0; i < states; ++i) {
    const std::uint32_t width = state / states;
    if (Status status = ReadColumns(kFirstState + i, begin, options.dim + i * width, width, records, read);
        !status.ok())
      return status;
  }
  if (!options.has_scores()) return {};
  return ReadColumns(kFirstState + states, begin, options.dim + state, ScoreFloats(options), records, read);
}

DataType RankTableReader::TypeOf(std::size_t place) const {
  return place == kValues ? table_->value_type : DataType::kFloat32;
}

Status RankTableReader::CheckNumbers(std::size_t place, std::uint64_t begin, std::uint32_t width,
                                     std::span<const std::byte> bytes) const {
  const TableOptions& options = table_->options;
  if (place == kFirstState + StatesOf(options.optimizer.kind).size()) return CheckScores(place, begin, bytes);
  const bool squares = place >= kFirstState &&
                       (place - kFirstState) * width >= SquaresBegin(options.optimizer.kind, options.dim);
  const auto wrong = FirstWrongNumber(bytes, TypeOf(place), squares);
  if (!wrong) return {};
  float number = 0;
  Widen(bytes.data() + *wrong * BytesOf(TypeOf(place)), TypeOf(place), {&number, 1});
  return FailedPrecondition(PathOf(place) + " has what no row can have: number " +
                            std::to_string(*wrong % width) + " of row " +
                            std::to_string(begin + *wrong / width) + " is " + std::to_string(number) +
                            (std::isfinite(number) ? ", and is a sum or mean of squares" : ""));
}

Status RankTableReader::CheckScores(std::size_t place, std::uint64_t begin,
                                    std::span<const std::byte> bytes) const {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t score = 0;
    std::memcpy(&score, bytes.data() + at, sizeof(score));
    if (score >= kScoreBound) {
      return FailedPrecondition(PathOf(place) + " has what no row can have: the score of row " +
                                std::to_string(begin + at / sizeof(score)) + " is " + std::to_string(score));
    }
  }
  return {};
}

// Fills columns [first, first + width) of the records from an array of that width.
Status RankTableReader::ReadColumns(std::size_t place, std::uint64_t begin, std::uint32_t first,
                                    std::uint32_t width, std::span<float> records, Read read) {
  const std::uint32_t record = RecordWidth(table_->options);
  const DataType type = TypeOf(place);
  const std::uint64_t row_bytes = width * BytesOf(type);
  const bool is_record = width == record && type == DataType::kFloat32;
  const std::uint64_t most = std::max<std::uint64_t>(1, kPieceBytes / row_bytes) * record;
  while (!records.empty()) {
    const auto piece = records.first(std::min<std::uint64_t>(most, records.size()));
    const std::uint64_t rows = piece.size() / record;
    if (!is_record) bytes_.resize(rows * row_bytes);
    const auto bytes = is_record ? std::as_writable_bytes(piece) : std::span(bytes_);
    if (Status status = ReadArray(place, begin, row_bytes, bytes, read); !status.ok()) return status;
    if (Status status = CheckNumbers(place, begin, width, bytes); !status.ok()) return status;
    for (std::uint64_t row = 0; row < rows && !is_record; ++row)
      Widen(bytes.data() + row * row_bytes, type, piece.subspan(row * record + first, width));
    begin += rows;
    records = records.subspan(piece.size());
  }
  return {};
}

namespace {

Status ReadErasedOf(RankTableReader& reader, const BucketOwners& owners, std::uint32_t rank,
                    std::uint64_t chunk_bytes, const RowSink& sink) {
  std::vector<Key> keys;
  const auto erase = [&](std::uint64_t begin, std::uint64_t count) -> Status {
    keys.resize(count);
    if (Status status = reader.ReadErased(begin, keys); !status.ok()) return status;
    return sink.erase(keys);
  };
  const std::uint64_t most_keys = std::max<std::uint64_t>(1, chunk_bytes / sizeof(Key));
  return EachPiece(RunsOf(reader.erased_starts(), owners, rank), most_keys, erase);
}

Status ReadRank(RankTableReader& reader, std::uint32_t width, const BucketOwners& owners, std::uint32_t rank,
                std::uint64_t chunk_bytes, const RowSink& sink) {
  const std::uint64_t most_rows = std::max<std::uint64_t>(1, chunk_bytes / (width * sizeof(float)));
  std::vector<Key> keys;
  std::vector<float> records;
  const auto assign = [&](std::uint64_t begin, std::uint64_t count) -> Status {
    keys.resize(count);
    records.resize(count * width);
    if (Status status = reader.ReadKeys(begin, keys); !status.ok()) return status;
    if (Status status = reader.ReadRecordsOn(begin, records); !status.ok()) return status;
    return sink.rows(keys, records);
  };
  if (Status status = ReadErasedOf(reader, owners, rank, chunk_bytes, sink); !status.ok()) return status;
  if (Status status = EachPiece(RunsOf(reader.starts(), owners, rank), most_rows, assign); !status.ok())
    return status;
  return reader.Settle();
}

}  // namespace

Status ReadTable(FileSystem& files, const std::string& folder, const Chain& chain, TableId table,
                 const BucketOwners& owners, BucketFunction bucket_of, std::uint32_t rank,
                 std::uint64_t chunk_bytes, const RowSink& sink) {
  if (chain.back().Find(table) == nullptr)
    return NotFound("checkpoint " + chain.back().id + " has no table " + std::to_string(Value(table)));
  for (const Manifest& link : chain) {
    const TableEntry* const entry = link.Find(table);
    if (entry == nullptr) continue;  // The table was made later.
    // A bucket's keys lie in one old rank's files alone, so the order of old ranks does not matter to the
    // rows. But a full table has room for what came only where something went, perhaps on another old rank.
    for (std::uint32_t old_rank = 0; link.is_delta() && link.ranks > 1 && old_rank < link.ranks; ++old_rank) {
      auto reader = RankTableReader::Open(files, folder + "/" + link.id, *entry, old_rank, bucket_of);
      if (!reader.ok()) return reader.status();
      if (Status status = ReadErasedOf(*reader, owners, rank, chunk_bytes, sink); !status.ok()) return status;
    }
    for (std::uint32_t old_rank = 0; old_rank < link.ranks; ++old_rank) {
      auto reader = RankTableReader::Open(files, folder + "/" + link.id, *entry, old_rank, bucket_of);
      if (!reader.ok()) return reader.status();
      const std::uint32_t width = RecordWidth(entry->options);
      if (Status status = ReadRank(*reader, width, owners, rank, chunk_bytes, sink); !status.ok())
        return status;
    }
  }
  return {};
}

Result<std::vector<std::byte>> ReadLedger(FileSystem& files, const std::string& folder, const Chain& chain) {
  return ReadWhole(files, folder + "/" + chain.back().id, chain.back().ledger);
}

}  // namespace slotwise
