#include "server/durability/journal_segment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "server/durability/bounds.h"

namespace slotwise {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

Status Damaged(const std::string& path, std::uint64_t offset, const std::string& what) {
  return DataLoss("the journal's file " + path + " is damaged at byte " + std::to_string(offset) + ": " +
                  what);
}

bool IsZero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes.front() == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// Reads records of a file under one seed.
class RecordReader {
 public:
  RecordReader(const ReadableFile& file, std::uint64_t seed) : file_(file), seed_(seed) {}

  // Returns nothing if there is no whole header at `offset`, or the body would pass the file's end.
  Result<std::optional<RecordHeader>> HeaderAt(std::uint64_t offset) const {
    if (offset + kRecordHeaderBytes > file_.size()) return std::optional<RecordHeader>();
    RecordHeaderBytes bytes;
    if (Status status = file_.ReadAt(offset, bytes); !status.ok()) return status;
    auto header = DecodeRecordHeader(bytes, seed_);
    if (header &&
        (header->body_bytes > kMaxRecordBytes || offset + BytesOfRecord(header->body_bytes) > file_.size())) {
      header.reset();
    }
    return header;
  }

  // Returns whether the body of the record whose header lies at `offset` is whole.
  Result<bool> BodyIsWhole(std::uint64_t offset, const RecordHeader& header) const {
    std::vector<std::byte> block(
        static_cast<std::size_t>(std::min<std::uint64_t>(kBlockBytes, header.body_bytes)));
    RecordHash hash(seed_);
    for (std::uint64_t done = 0; done < header.body_bytes;) {
      const auto bytes = std::span(block).first(
          static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), header.body_bytes - done)));
      if (Status status = file_.ReadAt(offset + kRecordHeaderBytes + done, bytes); !status.ok())
        return status;
      hash.Add(bytes);
      done += bytes.size();
    }
    return hash.Value() == header.payload_hash;
  }

  // Returns the mark at `offset`, if one lies there.
  Result<std::optional<RecordHeader>> MarkAt(std::uint64_t offset) const {
    if (offset + kRecordHeaderBytes > file_.size()) return std::optional<RecordHeader>();
    RecordHeaderBytes bytes;
    if (Status status = file_.ReadAt(offset, bytes); !status.ok()) return status;
    return DecodeMark(bytes, seed_);
  }

  // Describes the bytes from some offset on.
  struct Rest {
    std::optional<std::uint64_t> later;  // offset of a record or mark that was written when the bytes
                                         // were on disk
    bool is_zero = true;
  };
  Result<Rest> RestFrom(std::uint64_t offset, std::uint64_t instance) const {
    Rest rest;
    std::vector<std::byte> block(kBlockBytes + kRecordHeaderBytes);
    for (std::uint64_t at = offset; at < file_.size(); at += kBlockBytes) {
      at = std::max(at, file_.NextData(at) / 8 * 8);
      if (at >= file_.size()) break;
      const auto bytes = std::span(block).first(
          static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), file_.size() - at)));
      if (Status status = file_.ReadAt(at, bytes); !status.ok()) return status;
      if (IsZero(bytes)) continue;
      rest.is_zero = false;
      for (std::size_t i = 0; i + kRecordHeaderBytes <= bytes.size() && i < kBlockBytes; i += 8) {
        const std::span<const std::byte, kRecordHeaderBytes> place(bytes.data() + i, kRecordHeaderBytes);
        auto header = DecodeRecordHeader(place, seed_);
        if (!header) header = DecodeMark(place, seed_);
        if (header && header->instance == instance && header->group > offset) {
          rest.later = at + i;
          return rest;
        }
      }
    }
    return rest;
  }

 private:
  const ReadableFile& file_;
  std::uint64_t seed_;
};

bool Agrees(const SegmentHeader& header, const SegmentName& name) {
  return header.first_round == name.first_round && header.instance == name.instance &&
         header.rank < header.ranks && header.follows_round <= header.after_round;
}

// A larger run number or round would wrap around in a later run.
bool IsInBounds(const SegmentHeader& header) {
  return header.ranks <= kMaxJournalRanks && header.instance != 0 && header.run_number >= 1 &&
         header.run_number <= kMaxRunNumber && header.first_round <= kMaxRound &&
         header.after_round <= kMaxRound;
}

// Returns the offset of the first byte behind the header that is not 0.
Result<std::optional<std::uint64_t>> FirstByteBehindHeader(const ReadableFile& file) {
  std::vector<std::byte> block(kBlockBytes);
  for (std::uint64_t at = file.NextData(kSegmentHeaderBytes); at < file.size(); at = file.NextData(at)) {
    const auto bytes = std::span(block).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), file.size() - at)));
    if (Status status = file.ReadAt(at, bytes); !status.ok()) return status;
    if (!IsZero(bytes)) {
      const auto found =
          std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
      return std::optional<std::uint64_t>(at + static_cast<std::uint64_t>(found - bytes.begin()));
    }
    at += bytes.size();
  }
  return std::optional<std::uint64_t>();
}

void Count(const RecordHeader& record, JournalSegment& segment) {
  segment.end += BytesOfRecord(record.body_bytes);
  segment.last_round = record.round;
  segment.records += 1;
  segment.group = record.group;
  segment.complete = std::max(segment.complete, record.complete);
}

}  // namespace

Result<std::optional<SegmentHeader>> ReadSegmentHeader(const ReadableFile& file, const std::string& path,
                                                       const SegmentName& name) {
  const std::optional<SegmentHeader> none;
  if (file.size() < kSegmentHeaderBytes) return none;
  if (file.size() > kMaxSegmentBytes) {
    return DataLoss("the journal's file " + path + " has " + std::to_string(file.size()) +
                    " bytes, and a server writes at most " + std::to_string(kMaxSegmentBytes) +
                    ": it is none of its files");
  }
  SegmentHeaderBytes bytes;
  if (Status status = file.ReadAt(0, bytes); !status.ok()) return status;
  if (const auto header = DecodeSegmentHeader(bytes)) {
    if (!Agrees(*header, name)) return Damaged(path, 0, "the header is that of another file");
    if (!IsInBounds(*header)) return Damaged(path, 0, "the header has numbers that no server writes");
    return header;
  }
  const std::uint32_t version = VersionOf(bytes);
  if (version > kJournalVersion) {
    return FailedPrecondition("the journal's file " + path + " has format version " +
                              std::to_string(version) + "; this server reads version " +
                              std::to_string(kJournalVersion));
  }
  // Records are written only after the header is on disk. Before that, all bytes behind the header are 0.
  auto at = FirstByteBehindHeader(file);
  if (!at.ok()) return at.status();
  if (*at) return Damaged(path, 0, "this is no header, but records were written behind it");
  return none;
}

Result<JournalSegment> ScanSegment(const ReadableFile& file, const std::string& path,
                                   const SegmentHeader& header, std::uint64_t limit) {
  const RecordReader reader(file, header.seed);
  JournalSegment all{.path = path,
                     .header = header,
                     .end = kSegmentHeaderBytes,
                     .last_round = header.after_round,
                     .group = kSegmentHeaderBytes};
  JournalSegment before_group = all;  // the records before the last group
  while (true) {
    auto record = reader.HeaderAt(all.end);
    if (!record.ok()) return record.status();
    if (!*record || (*record)->round > limit) break;
    if ((*record)->group == all.end) {
      before_group = all;
    } else if (all.records == 0 || (*record)->group != all.group) {
      return Damaged(path, all.end, "its group began elsewhere");
    }
    if ((*record)->instance != header.instance || (*record)->round <= all.last_round) {
      return Damaged(path, all.end, "round " + std::to_string((*record)->round) + " does not belong here");
    }
    // A record is written before any rank can have its round on disk.
    if ((*record)->round > kMaxRound || (*record)->complete >= (*record)->round) {
      return Damaged(path, all.end,
                     "round " + std::to_string((*record)->round) + ", which says that round " +
                         std::to_string((*record)->complete) + " is complete, is none that a server writes");
    }
    Count(**record, all);
  }
  JournalSegment whole = before_group;
  while (whole.end < all.end) {
    auto record = reader.HeaderAt(whole.end);
    if (!record.ok()) return record.status();
    if (!*record) return Damaged(path, whole.end, "the record changes as it is read");
    auto is_whole = reader.BodyIsWhole(whole.end, **record);
    if (!is_whole.ok()) return is_whole.status();
    if (!*is_whole) break;
    Count(**record, whole);
  }
  if (whole.last_round >= limit) return whole;
  auto rest = reader.RestFrom(whole.end, header.instance);
  if (!rest.ok()) return rest.status();
  if (rest->later) {
    return Damaged(path, whole.end,
                   "this is no whole record, but one at byte " + std::to_string(*rest->later) +
                       " was written when it was on disk");
  }
  if (whole.end < all.end) {
    auto record = reader.HeaderAt(whole.end);
    if (!record.ok()) return record.status();
    whole.torn = *record ? "the record of round " + std::to_string((*record)->round) +
                               ", whose body does not have its checksum"
                         : "a record that changes as it is read";
    return whole;
  }
  auto mark = reader.MarkAt(whole.end);
  if (!mark.ok()) return mark.status();
  if (*mark && (*mark)->instance == header.instance && (*mark)->group == whole.end) {
    if ((*mark)->complete > whole.last_round)
      return Damaged(path, whole.end, "this mark is of a round that is not here");
    whole.complete = std::max(whole.complete, (*mark)->complete);
    // The next group begins where the mark is; a crash may have kept the mark and the bytes behind it.
    rest = reader.RestFrom(whole.end + kRecordHeaderBytes, header.instance);
    if (!rest.ok()) return rest.status();
    if (!rest->is_zero) whole.torn = "bytes that are no record";
  } else if (!rest->is_zero) {
    whole.torn = "bytes that are no record";
  }
  return whole;
}

RecordCursor::RecordCursor(FileSystem& files, std::vector<JournalSegment> segments, std::uint64_t after,
                           std::uint64_t last)
    : files_(&files), segments_(std::move(segments)), after_(after), last_(last) {}

Result<bool> RecordCursor::Next() {
  while (segment_ < segments_.size()) {
    const JournalSegment& segment = segments_[segment_];
    if (segment.records == 0 || segment.last_round <= after_ || (file_ != nullptr && next_ >= segment.end)) {
      file_.reset();
      ++segment_;
      continue;
    }
    if (file_ == nullptr) {
      auto file = files_->Open(segment.path);
      if (!file.ok()) return file.status();
      file_ = std::move(*file);
      next_ = kSegmentHeaderBytes;
    }
    auto record = RecordReader(*file_, segment.header.seed).HeaderAt(next_);
    if (!record.ok()) return record.status();
    if (!*record) return Damaged(segment.path, next_, "a record that was here is gone");
    record_ = **record;
    offset_ = next_;
    next_ += BytesOfRecord(record_.body_bytes);
    if (record_.round > last_) return false;
    if (record_.round > after_) return true;
  }
  return false;
}

Status RecordCursor::ReadBody(std::span<std::byte> body) const {
  const JournalSegment& segment = segments_[segment_];
  if (Status status = file_->ReadAt(offset_ + kRecordHeaderBytes, body); !status.ok()) return status;
  RecordHash hash(segment.header.seed);
  hash.Add(body);
  if (hash.Value() == record_.payload_hash) return Status();
  return Damaged(segment.path, offset_,
                 "the body of round " + std::to_string(record_.round) + " does not have its checksum");
}

}  // namespace slotwise
