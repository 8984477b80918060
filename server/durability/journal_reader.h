// ReadJournals: what the journals of all ranks of all runs hold together, and which rounds of it count.
//
// A round counts if every rank of its server instance has its record. Records behind a torn end do not count,
// nor do those of rounds that a later server instance says were not there when it began. A server instance
// counts if each of its ranks has a segment; one that was broken off as it started has no records, and is
// passed over, whatever it left. Rounds that a checkpoint covers need not be there; of files that only they
// could need, the headers alone are read.
//
// Thread-safety: ReadJournals and SyncJournals, any thread; a JournalRounds, one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_JOURNAL_READER_H_
#define SLOTWISE_SERVER_DURABILITY_JOURNAL_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/durability/file_system.h"
#include "server/durability/journal_format.h"
#include "server/durability/journal_segment.h"
#include "slotwise/status.h"

namespace slotwise {

// One run of the server.
struct JournalInstance {
  std::uint64_t instance = 0;
  std::uint64_t last_round = 0;                    // the last that counts
  std::vector<std::vector<JournalSegment>> ranks;  // the segments of each, in order
};

struct JournalSet {
  std::string folder;
  std::vector<JournalInstance> instances;  // in order; those that a checkpoint does not cover
  std::uint64_t covered = 0;               // the checkpoint's round
  std::uint64_t highest_run_number = 0;    // of all files, also of those that do not count
  std::uint64_t newest = 0;                // the newest server instance that counts, or 0
  // What a crash has broken off, as far as it shows: records of the newest server instance that were cut off,
  // and rounds that some ranks have and others have not. They count as never acknowledged. A sentence each,
  // with the file and the round.
  std::vector<std::string> broken_off;

  // Returns the last round that is complete, or covered.
  std::uint64_t LastCompleteRound() const;
  // Returns what the next server instance follows.
  JournalPosition Next() const;
};

// Makes sure that what the journals show is on disk. A recovery calls it, on one rank, before any rank reads:
// the system may show what a process that died had written but not synced, or failed to sync, and forget it
// in a later power failure, when a server has gone on from it. Writes the last records of each segment again,
// as they are, and syncs all segments that have a header, and folders. OK if there is no such folder.
Status SyncJournals(FileSystem& files, const std::string& folder);

// Reads the journals in a folder (none, if there is no such folder) for a recovery from a checkpoint of round
// `covered`, 0 for none. Changes nothing. Memory: a few hundred bytes a segment.
// DATA_LOSS: records are damaged or missing that are needed. FAILED_PRECONDITION: a segment is of another
// lineage, or of another version of the format. Each names a file.
Result<JournalSet> ReadJournals(FileSystem& files, const std::string& folder, std::uint64_t lineage,
                                std::uint64_t covered);

// Goes through all rounds that count and are not covered, in order.
class JournalRounds {
 public:
  // `files` must outlive it.
  JournalRounds(FileSystem& files, JournalSet set);

  // Goes to the next round; false if there is none. DATA_LOSS if the ranks' records are not of the same
  // round.
  Result<bool> Next();

  // REQUIRES, for these: Next returned true; rank < ranks().
  std::uint64_t round() const { return cursors_.front().round(); }
  std::size_t ranks() const { return cursors_.size(); }  // of the round's server instance
  std::uint32_t kind(std::size_t rank) const { return cursors_[rank].kind(); }
  std::uint64_t body_bytes(std::size_t rank) const { return cursors_[rank].body_bytes(); }
  // Returns "round 7 in FILE at byte 128": where a rank's record lies.
  std::string PlaceOf(std::size_t rank) const;
  // Reads a rank's record. DATA_LOSS, naming file and offset, if it is damaged. REQUIRES: body.size() ==
  // body_bytes(rank).
  Status ReadBody(std::size_t rank, std::span<std::byte> body) const { return cursors_[rank].ReadBody(body); }

 private:
  FileSystem& files_;
  JournalSet set_;
  std::size_t next_instance_ = 0;
  std::vector<RecordCursor> cursors_;  // a rank's each
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_READER_H_
