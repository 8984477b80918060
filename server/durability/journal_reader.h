// ReadJournals reads the journals of all ranks and all runs, and finds which of their rounds count.
//
// A round counts if every rank of its server instance has its record. Records behind a torn end do not count,
// and neither do rounds that a later server instance did not find when it began. A server instance counts if
// each of its ranks has a segment; an instance that was aborted during its start has no records, and is
// skipped. Rounds that a checkpoint covers may be missing; of files that hold only such rounds, the reader
// reads only the headers.
//
// Thread-safety: ReadJournals and SyncJournals, any thread; JournalRounds, one thread at a time.
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
  std::uint64_t last_round = 0;                    // the last round that counts
  std::vector<std::vector<JournalSegment>> ranks;  // each rank's segments, in order
};

struct JournalSet {
  std::string folder;
  std::vector<JournalInstance> instances;  // in order, without those that a checkpoint covers
  std::uint64_t covered = 0;               // the checkpoint's round
  std::uint64_t highest_run_number = 0;    // of all files, even those that do not count
  std::uint64_t newest = 0;                // the newest server instance that counts, or 0
  // Signs of a crash, a sentence each, with the file and the round: incomplete records of the newest server
  // instance, and rounds that only some ranks have. Such rounds count as never acknowledged.
  std::vector<std::string> broken_off;

  // Returns the last round that is complete or covered.
  std::uint64_t LastCompleteRound() const;
  // Returns the position from which the next server instance continues.
  JournalPosition Next() const;
};

// Makes durable all bytes that the journals show. A recovery calls it on one rank before any rank reads: the
// system may show bytes that a dead process had not synced, or failed to sync, and a later power failure may
// lose them after a server has continued from them. Rewrites the last records of each segment unchanged, and
// syncs the folders and all segments that have a header. OK if there is no such folder.
Status SyncJournals(FileSystem& files, const std::string& folder);

// Reads the journals in a folder for a recovery from a checkpoint of round `covered`; 0 means no checkpoint.
// A missing folder has none. Changes nothing. Memory: a few hundred bytes a segment. Errors name a file.
// DATA_LOSS: needed records are damaged or missing. FAILED_PRECONDITION: a segment has another lineage or
// another format version.
Result<JournalSet> ReadJournals(FileSystem& files, const std::string& folder, std::uint64_t lineage,
                                std::uint64_t covered);

// Iterates over all rounds that count and are not covered, in order.
class JournalRounds {
 public:
  // REQUIRES: `files` outlives this.
  JournalRounds(FileSystem& files, JournalSet set);

  // Goes to the next round; returns false if there is none. DATA_LOSS: the ranks' records differ in round.
  Result<bool> Next();

  // The functions below REQUIRE that Next returned true, and rank < ranks().
  std::uint64_t round() const { return cursors_.front().round(); }
  std::size_t ranks() const { return cursors_.size(); }  // of the round's server instance
  std::uint32_t kind(std::size_t rank) const { return cursors_[rank].kind(); }
  std::uint64_t body_bytes(std::size_t rank) const { return cursors_[rank].body_bytes(); }
  // Returns the place of a rank's record: "round 7 in FILE at byte 128".
  std::string PlaceOf(std::size_t rank) const;
  // Reads a rank's record. DATA_LOSS, naming file and offset: the record is damaged.
  // REQUIRES: body.size() == body_bytes(rank).
  Status ReadBody(std::size_t rank, std::span<std::byte> body) const { return cursors_[rank].ReadBody(body); }

 private:
  FileSystem& files_;
  JournalSet set_;
  std::size_t next_instance_ = 0;
  std::vector<RecordCursor> cursors_;  // one for each rank
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_READER_H_
