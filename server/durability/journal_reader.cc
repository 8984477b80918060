#include "server/durability/journal_reader.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace slotwise {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

constexpr std::uint64_t kCopiedAtOnce = std::uint64_t{1} << 20;

struct File {
  std::string path;
  SegmentName name;
  std::uint32_t rank = 0;
};

// A segment whose header was read, but not its records.
struct Header {
  std::string path;
  SegmentHeader header;
};

// All segments of a server instance, by rank.
struct Run {
  SegmentHeader facts;  // the fields that all headers share
  std::map<std::uint32_t, std::vector<Header>> ranks;

  bool IsWhole() const { return ranks.size() == facts.ranks; }
};

std::string Text(std::uint64_t number) { return std::to_string(number); }

// Returns the files of all segments, by rank and first round. Ignores other files.
Result<std::vector<File>> ListSegments(FileSystem& files, const std::string& folder) {
  std::vector<File> found;
  auto folders = files.List(folder);
  if (!folders.ok()) {
    if (folders.status().code() == StatusCode::kNotFound) return found;
    return folders.status();
  }
  for (const std::string& rank_name : *folders) {
    const auto rank = ParseRankFolder(rank_name);
    if (!rank) continue;
    std::string path = folder;
    path.append("/").append(rank_name);
    auto names = files.List(path);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (const auto segment = ParseSegmentName(name))
        found.push_back({std::string(path).append("/").append(name), *segment, *rank});
    }
  }
  std::sort(found.begin(), found.end(), [](const File& a, const File& b) {
    return std::tie(a.rank, a.name.first_round) < std::tie(b.rank, b.name.first_round);
  });
  return found;
}

// Adds a segment to its server instance.
Status Add(const File& file, const SegmentHeader& header, std::uint64_t lineage,
           std::map<std::uint64_t, Run>& runs) {
  if (header.rank != file.rank) {
    return DataLoss("the journal's file " + file.path + " is of rank " + Text(header.rank) +
                    ", but lies in another's folder");
  }
  if (header.lineage != lineage) {
    return FailedPrecondition("the journal's file " + file.path + " is of lineage " + Text(header.lineage) +
                              ", but the state is of lineage " + Text(lineage));
  }
  const auto [place, is_new] = runs.try_emplace(header.instance);
  Run& run = place->second;
  if (is_new) run.facts = header;
  if (run.facts.ranks != header.ranks || run.facts.run_number != header.run_number ||
      run.facts.follows != header.follows || run.facts.follows_round != header.follows_round) {
    return DataLoss(
        "the journal's file " + file.path +
        " does not agree with the others of its server instance on its ranks, or on what it follows");
  }
  run.ranks[header.rank].push_back({file.path, header});
  return Status();
}

// Reads all headers. A segment without a header counts as missing, which leaves a gap if a later segment
// follows.
Result<std::map<std::uint64_t, Run>> ReadHeaders(FileSystem& files, const std::vector<File>& segments,
                                                 std::uint64_t lineage) {
  std::map<std::uint64_t, Run> runs;
  for (const File& segment : segments) {
    auto file = files.Open(segment.path);
    if (!file.ok()) return file.status();
    auto header = ReadSegmentHeader(**file, segment.path, segment.name);
    if (!header.ok()) return header.status();
    if (!*header) continue;
    if (Status status = Add(segment, **header, lineage, runs); !status.ok()) return status;
  }
  return runs;
}

// Reads one rank's segments of a server instance. Skips the segments before the one that holds the first
// uncovered round.
Result<std::vector<JournalSegment>> ReadRank(FileSystem& files, const std::vector<Header>& headers,
                                             std::uint64_t covered, std::uint64_t limit) {
  std::size_t first = headers.size();
  while (first > 0 && headers[first - 1].header.after_round > covered) --first;
  if (first > 0) {
    --first;
  } else if (headers[0].header.after_round > headers[0].header.follows_round) {
    return DataLoss("a journal's file before " + headers[0].path + " is missing, which had rounds up to " +
                    Text(headers[0].header.after_round) + "; the checkpoint has those up to " +
                    Text(covered));
  }
  std::vector<JournalSegment> segments;
  for (std::size_t i = first; i < headers.size() && headers[i].header.after_round < limit; ++i) {
    auto file = files.Open(headers[i].path);
    if (!file.ok()) return file.status();
    auto segment = ScanSegment(**file, headers[i].path, headers[i].header, limit);
    if (!segment.ok()) return segment.status();
    if (i > first && segments.back().last_round != headers[i].header.after_round) {
      return DataLoss("the journal's file " + segments.back().path + " ends at byte " +
                      Text(segments.back().end) + " with round " + Text(segments.back().last_round) +
                      ", but " + headers[i].path + " follows round " + Text(headers[i].header.after_round));
    }
    segments.push_back(std::move(*segment));
  }
  return segments;
}

// Returns the last round that is on disk on a rank.
std::uint64_t LastRound(const Run& run, const std::vector<JournalSegment>& segments) {
  return segments.empty() ? run.facts.follows_round : segments.back().last_round;
}

// Reads each rank's segments of a run for the rounds in (covered, limit]. All ranks must have the rounds up
// to the limit, if there is one, and up to the last that a record says was on disk on all ranks.
Result<JournalInstance> ReadRun(FileSystem& files, const Run& run, std::uint64_t covered,
                                std::uint64_t limit) {
  JournalInstance result;
  result.instance = run.facts.instance;
  result.last_round = limit;
  std::uint64_t needed = limit == kNoLimit ? 0 : limit;
  for (const auto& [rank, headers] : run.ranks) {
    auto segments = ReadRank(files, headers, covered, limit);
    if (!segments.ok()) return segments.status();
    result.last_round = std::min(result.last_round, LastRound(run, *segments));
    for (const JournalSegment& segment : *segments) needed = std::max(needed, segment.complete);
    result.ranks.push_back(std::move(*segments));
  }
  if (needed <= covered || needed <= result.last_round) return result;
  for (const auto& [rank, headers] : run.ranks) {
    const std::uint64_t last = LastRound(run, result.ranks[rank]);
    if (last >= needed) continue;
    return DataLoss("the journal of rank " + Text(rank) + " ends with round " + Text(last) + " in " +
                    headers.back().path + ", but round " + Text(needed) + " was on disk at all ranks");
  }
  return result;
}

// Rewrites bytes [begin, end) of a file in place.
Status WriteAgain(const ReadableFile& from, WritableFile& to, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(kCopiedAtOnce, end - begin)));
  for (std::uint64_t at = begin; at < end;) {
    const auto bytes =
        std::span(block).first(static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), end - at)));
    if (Status status = from.ReadAt(at, bytes); !status.ok()) return status;
    const std::span<const std::byte> piece = bytes;
    if (Status status = to.WriteAt(at, std::span(&piece, 1)); !status.ok()) return status;
    at += bytes.size();
  }
  return Status();
}

// Makes a segment's visible bytes durable. A sync alone does not suffice: after a failed sync the system may
// show bytes that it never wrote, and count them as written.
Status WriteLastGroupAgain(FileSystem& files, const File& segment) {
  auto from = files.Open(segment.path);
  if (!from.ok()) return from.status();
  auto header = ReadSegmentHeader(**from, segment.path, segment.name);
  if (!header.ok()) return header.status();
  if (!*header) return Status();  // no byte of this segment counts, now or later
  auto to = files.OpenToWrite(segment.path);
  if (!to.ok()) return to.status();
  auto scanned = ScanSegment(**from, segment.path, **header, kNoLimit);
  if (!scanned.ok()) return scanned.status();
  if (Status status = WriteAgain(**from, **to, 0, kSegmentHeaderBytes); !status.ok()) return status;
  if (Status status = WriteAgain(**from, **to, scanned->group, scanned->end); !status.ok()) return status;
  return (*to)->Sync();
}

// Returns the sentences of JournalSet::broken_off for the newest run.
std::vector<std::string> BrokenOff(const Run& run, const JournalInstance& instance) {
  std::vector<std::string> all;
  for (std::uint32_t rank = 0; rank < instance.ranks.size(); ++rank) {
    const std::vector<JournalSegment>& segments = instance.ranks[rank];
    if (segments.empty()) continue;
    const JournalSegment& last = segments.back();
    if (!last.torn.empty()) {
      all.push_back(
          "the journal's file " + last.path + " ends at byte " + Text(last.end) + " with round " +
          Text(last.last_round) + ", and behind it lies " + last.torn +
          ": a crash broke off what was being written, or else the disk has damaged a record, and its "
          "update is lost even if it was acknowledged");
    }
    if (LastRound(run, segments) > instance.last_round) {
      all.push_back("the journal's file " + last.path + " has rounds up to " + Text(last.last_round) +
                    ", and another rank's has those up to " + Text(instance.last_round) +
                    ": later ones count as never acknowledged");
    }
  }
  return all;
}

const std::string& AFileOf(const Run& run) { return run.ranks.begin()->second.front().path; }

Status MissingRank(const Run& run) {
  std::uint32_t missing = 0;
  while (run.ranks.contains(missing)) ++missing;
  return DataLoss("rank " + Text(missing) + " of " + Text(run.facts.ranks) +
                  " has no journal of the server instance of " + AFileOf(run));
}

// Checks that a run with files of only some ranks was aborted during its start.
Status CheckNeverBegan(FileSystem& files, const Run& run, std::uint64_t covered) {
  const std::uint64_t start = std::max(run.facts.follows_round, covered);
  for (const auto& [rank, headers] : run.ranks) {
    for (const Header& segment : headers) {
      auto file = files.Open(segment.path);
      if (!file.ok()) return file.status();
      auto scanned = ScanSegment(**file, segment.path, segment.header, kNoLimit);
      if (!scanned.ok()) return scanned.status();
      if (scanned->last_round > start) return MissingRank(run);
    }
  }
  return Status();
}

// Returns the newest run with files of all ranks; null if there is none.
Result<const Run*> NewestRun(FileSystem& files, const std::map<std::uint64_t, Run>& runs,
                             std::uint64_t covered) {
  const Run* newest = nullptr;
  for (const auto& [instance, run] : runs) {
    if (!run.IsWhole()) continue;
    if (newest != nullptr && newest->facts.run_number == run.facts.run_number) {
      return DataLoss("the journal's files " + AFileOf(*newest) + " and " + AFileOf(run) +
                      " are of two server instances, neither of which follows the other");
    }
    if (newest == nullptr || newest->facts.run_number < run.facts.run_number) newest = &run;
  }
  for (const auto& [instance, run] : runs) {
    if (newest != nullptr && run.facts.run_number <= newest->facts.run_number) continue;
    if (Status status = CheckNeverBegan(files, run, covered); !status.ok()) return status;
  }
  return newest;
}

// Returns the run that `run` follows.
Result<const Run*> RunBefore(const Run& run, const std::map<std::uint64_t, Run>& runs,
                             std::uint64_t covered) {
  const auto before = runs.find(run.facts.follows);
  if (before == runs.end()) {
    return DataLoss("the journal's file " + AFileOf(run) + " follows round " + Text(run.facts.follows_round) +
                    ", but the files before it are missing, and the checkpoint has rounds up to " +
                    Text(covered));
  }
  if (!before->second.IsWhole()) return MissingRank(before->second);
  if (before->second.facts.run_number >= run.facts.run_number) {
    return DataLoss("the journal's file " + AFileOf(run) + " follows the server instance of " +
                    AFileOf(before->second) + ", which is no older");
  }
  return &before->second;
}

}  // namespace

std::uint64_t JournalSet::LastCompleteRound() const {
  return instances.empty() ? covered : std::max(covered, instances.back().last_round);
}

JournalPosition JournalSet::Next() const {
  JournalPosition next{.instance = newest, .round = LastCompleteRound(), .run_number = highest_run_number};
  for (const JournalInstance& run : instances) next.runs.push_back({run.instance, run.last_round});
  return next;
}

Status SyncJournals(FileSystem& files, const std::string& folder) {
  auto segments = ListSegments(files, folder);
  if (!segments.ok()) return segments.status();
  std::set<std::uint32_t> ranks;
  for (const File& segment : *segments) {
    // ReadJournals reports damage that matters.
    Status status = WriteLastGroupAgain(files, segment);
    if (!status.ok() && status.code() != StatusCode::kDataLoss) return status;
    ranks.insert(segment.rank);
  }
  for (const std::uint32_t rank : ranks) {
    if (Status status = files.SyncFolder(folder + "/" + RankFolder(rank)); !status.ok()) return status;
  }
  return ranks.empty() ? Status() : files.SyncFolder(folder);
}

Result<JournalSet> ReadJournals(FileSystem& files, const std::string& folder, std::uint64_t lineage,
                                std::uint64_t covered) {
  auto segments = ListSegments(files, folder);
  if (!segments.ok()) return segments.status();
  auto runs = ReadHeaders(files, *segments, lineage);
  if (!runs.ok()) return runs.status();
  auto newest = NewestRun(files, *runs, covered);
  if (!newest.ok()) return newest.status();

  JournalSet set;
  set.folder = folder;
  set.covered = covered;
  for (const auto& [instance, run] : *runs) {
    set.highest_run_number = std::max(set.highest_run_number, run.facts.run_number);
  }
  if (*newest == nullptr) return set;
  set.newest = (*newest)->facts.instance;
  std::uint64_t limit = kNoLimit;
  for (const Run* run = *newest;;) {
    auto instance = ReadRun(files, *run, covered, limit);
    if (!instance.ok()) return instance.status();
    if (run == *newest) set.broken_off = BrokenOff(*run, *instance);
    set.instances.push_back(std::move(*instance));
    limit = run->facts.follows_round;
    if (limit <= covered) break;
    auto before = RunBefore(*run, *runs, covered);
    if (!before.ok()) return before.status();
    run = *before;
  }
  std::reverse(set.instances.begin(), set.instances.end());
  return set;
}

JournalRounds::JournalRounds(FileSystem& files, JournalSet set) : files_(files), set_(std::move(set)) {}

std::string JournalRounds::PlaceOf(std::size_t rank) const {
  const RecordCursor& cursor = cursors_[rank];
  return "round " + Text(cursor.round()) + " in " + cursor.path() + " at byte " + Text(cursor.offset());
}

Result<bool> JournalRounds::Next() {
  while (true) {
    if (cursors_.empty()) {
      if (next_instance_ == set_.instances.size()) return false;
      JournalInstance& instance = set_.instances[next_instance_++];
      for (std::vector<JournalSegment>& segments : instance.ranks) {
        cursors_.emplace_back(files_, std::move(segments), set_.covered, instance.last_round);
      }
    }
    std::size_t at_end = 0;
    for (RecordCursor& cursor : cursors_) {
      auto more = cursor.Next();
      if (!more.ok()) return more.status();
      if (!*more) ++at_end;
    }
    if (at_end == 0) {
      for (const RecordCursor& cursor : cursors_) {
        if (cursor.round() != round()) {
          return DataLoss("the journal's file " + cursor.path() + " goes on with round " +
                          Text(cursor.round()) + " where " + cursors_.front().path() + " has round " +
                          Text(round()));
        }
      }
      return true;
    }
    if (at_end < cursors_.size()) {
      return DataLoss("the journals of a server instance's ranks in " + set_.folder +
                      " have different rounds before round " +
                      Text(set_.instances[next_instance_ - 1].last_round));
    }
    cursors_.clear();
  }
}

}  // namespace slotwise
