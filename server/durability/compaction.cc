#include "server/durability/compaction.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "server/durability/bucket_order.h"
#include "server/durability/checkpoint_reader.h"
#include "server/durability/checkpoint_writer.h"

namespace slotwise {
namespace {

// The contents of one link in a range of buckets. The range's i-th bucket has the keys
// [starts[i], starts[i + 1]), and the erased keys that erased_starts names in the same way.
struct Slice {
  std::vector<Key> keys;
  std::vector<Key> erased;
  std::vector<float> records;
  std::vector<std::size_t> starts;
  std::vector<std::size_t> erased_starts;
};

struct Merged {
  std::vector<Key> keys;
  std::vector<float> records;
};

// Merges one table of a chain, one range of buckets after the other.
class TableMerge {
 public:
  static Result<TableMerge> Open(FileSystem& files, const std::string& folder, const Chain& chain,
                                 TableId table);

  std::uint32_t width() const { return width_; }

  // Returns the end of the range that begins with buckets[first] and needs at most `memory_bytes`.
  std::size_t EndOfRange(const std::vector<std::uint32_t>& buckets, std::size_t first,
                         std::uint64_t memory_bytes) const;

  // Reads the keys of a range of buckets from all links, and their records if `with_records` is set.
  Status Load(std::span<const std::uint32_t> buckets, bool with_records);

  // Returns the merged rows of the i-th bucket that was loaded, with ascending keys.
  void Merge(std::size_t i, Merged& merged) const;

 private:
  struct Link {
    const TableEntry* entry;
    std::vector<RankTableReader> ranks;
    Slice slice;

    RankTableReader& Of(std::uint32_t bucket) { return ranks[entry->owners[bucket]]; }
    const RankTableReader& Of(std::uint32_t bucket) const { return ranks[entry->owners[bucket]]; }
  };

  Status LoadBucket(Link& link, std::uint32_t bucket, bool with_records) const;

  std::uint32_t width_ = 0;
  std::vector<Link> links_;
};

std::size_t CountIn(const BucketStarts& starts, std::uint32_t bucket) {
  return starts[bucket + 1] - starts[bucket];
}

Result<TableMerge> TableMerge::Open(FileSystem& files, const std::string& folder, const Chain& chain,
                                    TableId table) {
  TableMerge merge;
  for (const Manifest& manifest : chain) {
    const TableEntry* const entry = manifest.Find(table);
    if (entry == nullptr) continue;
    merge.width_ = RecordFloats(entry->options);
    Link link{.entry = entry, .ranks = {}, .slice = {}};
    for (std::uint32_t rank = 0; rank < manifest.ranks; ++rank) {
      auto reader = RankTableReader::Open(files, folder + "/" + manifest.id, *entry, rank, nullptr);
      if (!reader.ok()) return reader.status();
      link.ranks.push_back(std::move(*reader));
    }
    merge.links_.push_back(std::move(link));
  }
  return merge;
}

std::size_t TableMerge::EndOfRange(const std::vector<std::uint32_t>& buckets, std::size_t first,
                                   std::uint64_t memory_bytes) const {
  std::uint64_t bytes = 0;
  std::size_t end = first;
  for (; end < buckets.size(); ++end) {
    for (const Link& link : links_) {
      const RankTableReader& rank = link.Of(buckets[end]);
      bytes += CountIn(rank.starts(), buckets[end]) * (sizeof(Key) + width_ * sizeof(float));
      bytes += CountIn(rank.erased_starts(), buckets[end]) * sizeof(Key);
    }
    if (bytes > memory_bytes && end > first) break;
  }
  return end;
}

Status TableMerge::LoadBucket(Link& link, std::uint32_t bucket, bool with_records) const {
  RankTableReader& rank = link.Of(bucket);
  Slice& slice = link.slice;
  const std::size_t count = CountIn(rank.starts(), bucket);
  slice.keys.resize(slice.keys.size() + count);
  const auto keys = std::span(slice.keys).last(count);
  if (Status status = rank.ReadKeys(rank.starts()[bucket], keys); count > 0 && !status.ok()) return status;
  const std::size_t erased = CountIn(rank.erased_starts(), bucket);
  if (erased > 0) {
    slice.erased.resize(slice.erased.size() + erased);
    const auto erased_keys = std::span(slice.erased).last(erased);
    if (Status status = rank.ReadErased(rank.erased_starts()[bucket], erased_keys); !status.ok())
      return status;
  }
  slice.starts.push_back(slice.keys.size());
  slice.erased_starts.push_back(slice.erased.size());
  if (!with_records || count == 0) return {};
  slice.records.resize(slice.records.size() + count * width_);
  return rank.ReadRecords(rank.starts()[bucket], std::span(slice.records).last(count * width_));
}

Status TableMerge::Load(std::span<const std::uint32_t> buckets, bool with_records) {
  for (Link& link : links_) {
    link.slice = {.keys = {}, .erased = {}, .records = {}, .starts = {0}, .erased_starts = {0}};
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      // One old rank's files are open at a time.
      if (i > 0 && &link.Of(buckets[i]) != &link.Of(buckets[i - 1])) link.Of(buckets[i - 1]).Close();
      if (Status status = LoadBucket(link, buckets[i], with_records); !status.ok()) return status;
    }
    link.Of(buckets.back()).Close();
  }
  return {};
}

void TableMerge::Merge(std::size_t i, Merged& merged) const {
  struct Item {
    Key key;
    std::size_t link;
    bool is_row;  // else an erased key, which comes before its link's rows
    std::size_t place;
  };
  std::vector<Item> items;
  for (std::size_t link = 0; link < links_.size(); ++link) {
    const Slice& slice = links_[link].slice;
    for (std::size_t e = slice.erased_starts[i]; e < slice.erased_starts[i + 1]; ++e)
      items.push_back({.key = slice.erased[e], .link = link, .is_row = false, .place = e});
    for (std::size_t k = slice.starts[i]; k < slice.starts[i + 1]; ++k)
      items.push_back({.key = slice.keys[k], .link = link, .is_row = true, .place = k});
  }
  std::ranges::sort(items, {}, [](const Item& a) { return std::tuple(a.key, a.link, a.is_row); });
  merged.keys.clear();
  merged.records.clear();
  for (std::size_t k = 0; k < items.size(); ++k) {
    const bool is_last = k + 1 == items.size() || items[k + 1].key != items[k].key;
    if (!is_last || !items[k].is_row) continue;
    merged.keys.push_back(items[k].key);
    const std::vector<float>& records = links_[items[k].link].slice.records;
    if (records.empty()) continue;
    const auto record = records.begin() + static_cast<std::ptrdiff_t>(items[k].place * width_);
    merged.records.insert(merged.records.end(), record, record + width_);
  }
}

// Calls `visit(bucket, merged)` for each bucket of `rank`, in order.
template <class Visit>
Status EachBucket(TableMerge& merge, const BucketOwners& owners, std::uint32_t rank, bool with_records,
                  std::uint64_t memory_bytes, const Visit& visit) {
  std::vector<std::uint32_t> buckets;
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
    if (owners[bucket] == rank) buckets.push_back(bucket);
  }
  Merged merged;
  for (std::size_t first = 0; first < buckets.size();) {
    const std::size_t end = merge.EndOfRange(buckets, first, memory_bytes);
    const auto range = std::span(buckets).subspan(first, end - first);
    if (Status status = merge.Load(range, with_records); !status.ok()) return status;
    for (std::size_t i = 0; i < range.size(); ++i) {
      merge.Merge(i, merged);
      if (Status status = visit(range[i], merged); !status.ok()) return status;
    }
    first = end;
  }
  return {};
}

// Returns the largest error of any link, and the links' common value type, or else float32.
std::pair<float, DataType> ValuesOf(const Chain& chain, TableId table) {
  float largest_error = 0;
  DataType type = chain.back().Find(table)->value_type;
  for (const Manifest& link : chain) {
    const TableEntry* const entry = link.Find(table);
    if (entry == nullptr) continue;
    if (entry->value_type != type) type = DataType::kFloat32;
    for (const RankEntry& rank : entry->ranks) largest_error = std::max(largest_error, rank.largest_error);
  }
  return {largest_error, type};
}

Result<RankEntry> WriteRank(CheckpointWriter& writer, TableMerge& merge, const TableEntry& table,
                            std::uint32_t rank, std::uint64_t memory_bytes) {
  BucketStarts starts(kBucketCount + 1);
  const auto count = [&](std::uint32_t bucket, const Merged& merged) {
    starts[bucket + 1] = merged.keys.size();
    return Status();
  };
  if (Status status = EachBucket(merge, table.owners, rank, false, memory_bytes, count); !status.ok())
    return status;
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  auto out = writer.BeginTable({.table = table.id,
                                .options = table.options,
                                .value_type = table.value_type,
                                .starts = std::move(starts),
                                .erased_starts = {}});
  if (!out.ok()) return out.status();
  const auto write = [&](std::uint32_t /*bucket*/, const Merged& merged) {
    const Status status = out->AppendKeys(merged.keys);
    return status.ok() ? out->AppendRecords(merged.records) : status;
  };
  if (Status status = EachBucket(merge, table.owners, rank, true, memory_bytes, write); !status.ok())
    return status;
  return out->Finish();
}

Status WriteTables(FileSystem& files, const std::string& folder, const Chain& chain,
                   const CompactOptions& options, Manifest& base) {
  for (TableEntry& table : base.tables) {
    const auto [largest_error, value_type] = ValuesOf(chain, table.id);
    table.value_type = value_type;
    auto merge = TableMerge::Open(files, folder, chain, table.id);
    if (!merge.ok()) return merge.status();
    for (std::uint32_t rank = 0; rank < base.ranks; ++rank) {
      auto writer = CheckpointWriter::Begin(files, folder, base.id, rank, options.block_bytes);
      if (!writer.ok()) return writer.status();
      auto entry = WriteRank(*writer, *merge, table, rank, options.memory_bytes);
      if (!entry.ok()) return entry.status();
      entry->largest_error = largest_error;  // Values of 16 bits are exact in 16 bits.
      table.ranks[rank] = std::move(*entry);
    }
  }
  return {};
}

Status WriteAll(FileSystem& files, const std::string& folder, const Chain& chain,
                const CompactOptions& options, Manifest& base) {
  if (Status status = WriteTables(files, folder, chain, options, base); !status.ok()) return status;
  const auto ledger = ReadLedger(files, folder, chain);
  if (!ledger.ok()) return ledger.status();
  auto writer = CheckpointWriter::Begin(files, folder, base.id, 0, options.block_bytes);
  if (!writer.ok()) return writer.status();
  auto entry = writer->WriteLedger(*ledger);
  if (!entry.ok()) return entry.status();
  base.ledger = std::move(*entry);
  return writer->Finish();
}

}  // namespace

Result<Manifest> Compact(FileSystem& files, const std::string& folder, const Chain& chain,
                         const CompactOptions& options) {
  if (chain.size() < 2) return FailedPrecondition("checkpoint " + chain.back().id + " is a base already");
  Manifest base = chain.back();
  base.folds = base.name();
  base.parent.reset();
  base.id = options.id;
  base.server_version = options.server_version;
  if (!IsCheckpointId(base.id)) return FailedPrecondition("'" + base.id + "' is no checkpoint's id");
  Status status = WriteAll(files, folder, chain, options, base);
  if (status.ok()) status = PublishCheckpoint(files, folder, base);
  if (status.ok()) return base;
  // The files are useless now. If they cannot be removed here, RemoveLeftovers removes them.
  (void)files.RemoveFolder(PartialFolder(folder, base.id));
  return status;
}

}  // namespace slotwise
