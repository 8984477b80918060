// Reads one segment of a journal.
//
// All bytes before a record's group were on disk when the record was written, so a crash can tear, in any
// order, only a segment's last group. ScanSegment reads the headers of all records, and the bodies of the
// last group; earlier bodies are checked when they are read. A mark behind the last group shows that all
// ranks have the records before it, so that group was on disk, too.
//
// Thread-safety: functions, any thread; a RecordCursor, one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_JOURNAL_SEGMENT_H_
#define SLOTWISE_SERVER_DURABILITY_JOURNAL_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/durability/file_system.h"
#include "server/durability/journal_format.h"
#include "slotwise/status.h"

namespace slotwise {

// A segment's records that count.
struct JournalSegment {
  std::string path;
  SegmentHeader header;
  std::uint64_t end = 0;         // the end of the last record that counts
  std::uint64_t last_round = 0;  // of these records; header.after_round if there are none
  std::uint64_t records = 0;
  std::uint64_t group = 0;     // the begin of the last group of these records
  std::uint64_t complete = 0;  // the last round that records or mark say was on disk at all ranks
  // A description of the bytes behind `end`, if they are neither space taken ahead nor a mark; else empty.
  std::string torn = {};
};

// Reads a segment's header. `name` is the file's. Returns nothing if there is neither a header nor a record:
// a crash came before the header was on disk. DATA_LOSS: the header is damaged or has numbers that no server
// writes, or the file is larger than kMaxSegmentBytes. FAILED_PRECONDITION: another format version wrote it.
Result<std::optional<SegmentHeader>> ReadSegmentHeader(const ReadableFile& file, const std::string& path,
                                                       const SegmentName& name);

// Finds the records up to round `limit`. DATA_LOSS, naming file and offset: a record is damaged, although a
// later one shows that it was on disk.
Result<JournalSegment> ScanSegment(const ReadableFile& file, const std::string& path,
                                   const SegmentHeader& header, std::uint64_t limit);

// Iterates over the records of several segments of one rank, in order.
class RecordCursor {
 public:
  // Covers the rounds in (after, last]. `files` must outlive the cursor.
  RecordCursor(FileSystem& files, std::vector<JournalSegment> segments, std::uint64_t after,
               std::uint64_t last);

  // Goes to the next record; returns false if there is none.
  Result<bool> Next();

  // The functions below REQUIRE that Next returned true.
  std::uint64_t round() const { return record_.round; }
  std::uint32_t kind() const { return record_.kind; }
  std::uint64_t body_bytes() const { return record_.body_bytes; }
  const std::string& path() const { return segments_[segment_].path; }
  std::uint64_t offset() const { return offset_; }  // of the record in the file
  // Reads the body. DATA_LOSS, naming file and offset: the body is damaged.
  // REQUIRES: body.size() == body_bytes().
  Status ReadBody(std::span<std::byte> body) const;

 private:
  FileSystem* files_;
  std::vector<JournalSegment> segments_;
  std::uint64_t after_;
  std::uint64_t last_;
  std::size_t segment_ = 0;
  std::unique_ptr<ReadableFile> file_;  // of segments_[segment_]; null before it is opened
  std::uint64_t next_ = 0;              // the next record's offset
  std::uint64_t offset_ = 0;            // the current record's
  RecordHeader record_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_SEGMENT_H_
