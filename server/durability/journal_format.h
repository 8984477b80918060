// The format of the journal's files. It is documented here so that other programs can read them, too.
//
// A rank's journal is a folder of segments, `rank-<r>/<first round>-<instance>.journal`: the first round
// in 20 decimal digits, the server instance in 16 hexadecimal ones. A segment is a header and then records.
// All numbers are little-endian; `hash` is xxh3-64.
//
//   segment header (128 bytes)                              record (at an offset that 8 divides)
//     0  8  "SLWJRNL\n"                                       0  4  "SLWR"
//     8  4  format version: 1                                 4  4  kind, the writer's business
//    12  4  rank                                              8  8  round
//    16  4  ranks of this server instance                    16  8  bytes of the body
//    20  4  0                                                24  8  server instance, as in the segment's
//    24  8  lineage of the data folder                       32  8  offset of the first record of its group:
//    32  8  server instance                                         those written together. All bytes of the
//    40  8  run number                                              segment before it were on disk by then
//    48  8  the instance that this one follows, or 0         40  8  a round that was on disk at all ranks
//    56  8  the last round before this server instance       48  8  hash of the body, under the seed
//    64  8  first round that may be in this segment          56  8  hash of bytes 0 to 55, under the seed
//    72  8  the rank's last round before this segment        64     body, then 0 to 7 bytes of 0
//    80  8  the seed of the records' hashes
//    88 32  0                                               A segment may end in a mark, and in other bytes:
//   120  8  hash of bytes 0 to 119                          space taken ahead (0), or what a crash left.
//
// A mark is a record's header without a body that begins with "SLWM". Its round equals its complete round,
// which was on disk at all ranks when no record had come for a while. The next record overwrites the mark.
//
// A server instance is one run of a server. Its header names the run that it follows and the last round of
// that run that counts: records of later rounds are void. Its run number is above those of all earlier runs.
// The seed is secret to clients, so that the bytes they send, which lie in bodies, cannot imitate a record.
#ifndef SLOTWISE_SERVER_DURABILITY_JOURNAL_FORMAT_H_
#define SLOTWISE_SERVER_DURABILITY_JOURNAL_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slotwise {

inline constexpr std::size_t kSegmentHeaderBytes = 128;
inline constexpr std::size_t kRecordHeaderBytes = 64;
inline constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{4} << 30;  // limit of a body
inline constexpr std::uint32_t kJournalVersion = 1;
// No segment is larger, reserved space included: a segment gets no second record that would take it past
// JournalOptions::segment_bytes, but its first record may be as large as any.
inline constexpr std::uint64_t kMaxSegmentBytes = kMaxRecordBytes + (std::uint64_t{1} << 31);
inline constexpr std::uint32_t kMaxJournalRanks = 4096;  // as many as a table has buckets

// A server instance, and the last of its rounds that counts.
struct EarlierRun {
  std::uint64_t instance = 0;
  std::uint64_t last_round = 0;
  friend bool operator==(const EarlierRun&, const EarlierRun&) = default;
};

// The point from which a server instance continues.
struct JournalPosition {
  std::uint64_t instance = 0;    // the instance before; 0 if there is none
  std::uint64_t round = 0;       // the last round that counts
  std::uint64_t run_number = 0;  // the highest one so far
  // The server instances with rounds that no checkpoint has, in order. A recovery needs no others.
  std::vector<EarlierRun> runs = {};
  friend bool operator==(const JournalPosition&, const JournalPosition&) = default;
};

struct SegmentHeader {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint64_t lineage = 0;
  std::uint64_t instance = 0;
  std::uint64_t run_number = 0;
  std::uint64_t follows = 0;        // a server instance, or 0
  std::uint64_t follows_round = 0;  // the last round before this server instance
  std::uint64_t first_round = 0;
  std::uint64_t after_round = 0;  // the last round in the rank's earlier segments, at least follows_round
  std::uint64_t seed = 0;
  friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};

struct RecordHeader {
  std::uint32_t kind = 0;
  std::uint64_t round = 0;
  std::uint64_t body_bytes = 0;
  std::uint64_t instance = 0;
  std::uint64_t group = 0;
  std::uint64_t complete = 0;
  std::uint64_t payload_hash = 0;
};

using SegmentHeaderBytes = std::array<std::byte, kSegmentHeaderBytes>;
using RecordHeaderBytes = std::array<std::byte, kRecordHeaderBytes>;

SegmentHeaderBytes Encode(const SegmentHeader& header);
// Returns nothing if the bytes are no header of this version.
std::optional<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte, kSegmentHeaderBytes> bytes);
// Returns the version in the bytes if they have a header's magic, and else 0.
std::uint32_t VersionOf(std::span<const std::byte, kSegmentHeaderBytes> bytes);

RecordHeaderBytes Encode(const RecordHeader& header, std::uint64_t seed);
// Returns nothing if the bytes are no record's header under that seed.
std::optional<RecordHeader> DecodeRecordHeader(std::span<const std::byte, kRecordHeaderBytes> bytes,
                                               std::uint64_t seed);

// Encodes and decodes a mark, whose `round` and `complete` are equal.
RecordHeaderBytes EncodeMark(const RecordHeader& mark, std::uint64_t seed);
std::optional<RecordHeader> DecodeMark(std::span<const std::byte, kRecordHeaderBytes> bytes,
                                       std::uint64_t seed);

// Returns a record's size in a segment. REQUIRES: body_bytes <= kMaxRecordBytes.
constexpr std::uint64_t BytesOfRecord(std::uint64_t body_bytes) {
  return kRecordHeaderBytes + (body_bytes + 7) / 8 * 8;
}

struct SegmentName {
  std::uint64_t first_round = 0;
  std::uint64_t instance = 0;
};
std::string ToString(const SegmentName& name);
std::optional<SegmentName> ParseSegmentName(std::string_view name);

// Returns for example "rank-7".
std::string RankFolder(std::uint32_t rank);
std::optional<std::uint32_t> ParseRankFolder(std::string_view name);

// Computes the hash of a body that comes in pieces.
class RecordHash {
 public:
  explicit RecordHash(std::uint64_t seed);
  ~RecordHash();
  RecordHash(const RecordHash&) = delete;
  RecordHash& operator=(const RecordHash&) = delete;

  void Add(std::span<const std::byte> bytes);
  std::uint64_t Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_FORMAT_H_
