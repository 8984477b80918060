// What one segment of a journal holds: the reader's view of a file.
//
// All bytes before a record's group were on disk when the record was written, so only a segment's last group
// can be torn by a crash, in any order. ScanSegment reads the headers of all records and the bodies of the
// last group. Bodies before that are checked as they are read. A segment's last group may have a mark behind
// it, which is written when all ranks have what lies before: then it was on disk, too.
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

// A segment, as far as its records count.
struct JournalSegment {
  std::string path;
  SegmentHeader header;
  std::uint64_t end = 0;         // behind the last record that counts
  std::uint64_t last_round = 0;  // of those records; header.after_round if there are none
  std::uint64_t records = 0;
  std::uint64_t group = 0;     // where the last group of those records begins
  std::uint64_t complete = 0;  // the last round that its records and its mark say was on disk at all ranks
  // What lies behind the end if it is neither space that was taken ahead nor a mark, in words; or empty.
  std::string torn = {};
};

// Reads a segment's header. Returns nothing if there is none and no record behind it: a crash came before it
// was on disk. DATA_LOSS: it is damaged, or has numbers that no server writes, or the file is larger than
// kMaxSegmentBytes. FAILED_PRECONDITION: another version wrote it. `name` is the file's.
Result<std::optional<SegmentHeader>> ReadSegmentHeader(const ReadableFile& file, const std::string& path,
                                                       const SegmentName& name);

// Finds the records up to round `limit`. DATA_LOSS, naming file and offset: a record is damaged, and a later
// one shows that it was on disk.
Result<JournalSegment> ScanSegment(const ReadableFile& file, const std::string& path,
                                   const SegmentHeader& header, std::uint64_t limit);

// Goes through the records of several segments of one rank, in order.
class RecordCursor {
 public:
  // Goes through rounds in (after, last]. `files` must outlive the cursor.
  RecordCursor(FileSystem& files, std::vector<JournalSegment> segments, std::uint64_t after,
               std::uint64_t last);

  // Goes to the next record; false if there is none.
  Result<bool> Next();

  // REQUIRES, for these: Next returned true.
  std::uint64_t round() const { return record_.round; }
  std::uint32_t kind() const { return record_.kind; }
  std::uint64_t body_bytes() const { return record_.body_bytes; }
  const std::string& path() const { return segments_[segment_].path; }
  std::uint64_t offset() const { return offset_; }  // of the record in the file
  // Reads the body. DATA_LOSS, naming file and offset, if it is damaged. REQUIRES: body.size() ==
  // body_bytes().
  Status ReadBody(std::span<std::byte> body) const;

 private:
  FileSystem* files_;
  std::vector<JournalSegment> segments_;
  std::uint64_t after_;
  std::uint64_t last_;
  std::size_t segment_ = 0;
  std::unique_ptr<ReadableFile> file_;  // of segments_[segment_]; null before it is opened
  std::uint64_t next_ = 0;              // the next record's offset
  std::uint64_t offset_ = 0;            // this record's
  RecordHeader record_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_SEGMENT_H_
