#include "tests/sim/damage.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "server/durability/journal_format.h"

namespace slotwise::sim {
namespace {

constexpr std::string_view kCheckpoints = "data/checkpoints";
constexpr std::string_view kJournal = "data/journal";

// Files of the folder and of those in it.
void AddFiles(SimFiles& files, const std::string& folder, std::vector<std::string>& paths) {
  const auto names = files.List(folder);
  if (!names.ok()) return paths.push_back(folder);
  for (const std::string& name : *names) AddFiles(files, folder + "/" + name, paths);
}

// A segment of a journal, and what can be read of it from its beginning on.
struct Segment {
  std::string path;
  std::vector<std::byte> bytes;
  std::optional<SegmentHeader> header;
};

std::optional<RecordHeader> RecordAt(const Segment& segment, std::size_t at) {
  if (!segment.header || at + kRecordHeaderBytes > segment.bytes.size()) return std::nullopt;
  return DecodeRecordHeader(std::span(segment.bytes).subspan(at).first<kRecordHeaderBytes>(),
                            segment.header->seed);
}

// Returns the mark there, which says that all ranks had what lies before it.
std::optional<RecordHeader> MarkAt(const Segment& segment, std::size_t at) {
  if (!segment.header || at + kRecordHeaderBytes > segment.bytes.size()) return std::nullopt;
  return DecodeMark(std::span(segment.bytes).subspan(at).first<kRecordHeaderBytes>(), segment.header->seed);
}

bool IsWhole(const Segment& segment, std::size_t at, const RecordHeader& record) {
  if (BytesOfRecord(record.body_bytes) > segment.bytes.size() - at) return false;
  RecordHash hash(segment.header->seed);
  hash.Add(std::span(segment.bytes).subspan(at + kRecordHeaderBytes, record.body_bytes));
  return hash.Value() == record.payload_hash;
}

Segment ReadSegment(const SimFiles& files, const std::string& path) {
  Segment segment{.path = path, .bytes = files.Contents(path), .header = {}};
  if (segment.bytes.size() >= kSegmentHeaderBytes)
    segment.header = DecodeSegmentHeader(std::span(segment.bytes).first<kSegmentHeaderBytes>());
  return segment;
}

// Returns where its records begin, up to the first that is none.
std::vector<std::size_t> RecordsOf(const Segment& segment) {
  std::vector<std::size_t> records;
  std::size_t at = kSegmentHeaderBytes;
  for (auto record = RecordAt(segment, at); record; record = RecordAt(segment, at)) {
    records.push_back(at);
    at += BytesOfRecord(record->body_bytes);
  }
  return records;
}

// Returns one of its first bytes, often of a record's header, which says how the file goes on.
std::size_t DrawPlace(Random& random, const Segment& segment, std::size_t first) {
  const std::vector<std::size_t> records = RecordsOf(segment);
  if (records.empty() || random.OneIn(2)) return random.Below(first);
  return random.OneOf(records) + random.Below(kRecordHeaderBytes);
}

// Returns the last round that the segment's whole records, up to the first that is none, and the mark behind
// them say was complete.
std::uint64_t CompleteRound(const Segment& segment) {
  std::uint64_t complete = 0;
  for (std::size_t at = kSegmentHeaderBytes;;) {
    const auto record = RecordAt(segment, at);
    if (!record) {
      const auto mark = MarkAt(segment, at);
      return mark ? std::max(complete, mark->complete) : complete;
    }
    if (!IsWhole(segment, at, *record)) return complete;
    complete = std::max(complete, record->complete);
    at += BytesOfRecord(record->body_bytes);
  }
}

// Returns whether some record, or a mark, shows that the bytes up to `at` and behind it were on disk.
bool ShowsWhatWasThere(const Segment& segment, std::size_t at) {
  for (std::size_t place = kSegmentHeaderBytes; place < segment.bytes.size(); place += 8) {
    auto record = RecordAt(segment, place);
    if (!record) record = MarkAt(segment, place);
    if (record && record->instance == segment.header->instance && record->group > at) return true;
  }
  return false;
}

// The newest run of which each rank has a segment: its segments, by rank and first round.
std::vector<Segment> NewestRun(SimFiles& files) {
  std::vector<std::string> paths;
  if (files.List(std::string(kJournal)).ok()) AddFiles(files, std::string(kJournal), paths);
  std::map<std::uint64_t, std::vector<Segment>> runs;  // by run number
  for (const std::string& path : paths) {
    if (!path.ends_with(".journal")) continue;
    Segment segment = ReadSegment(files, path);
    if (segment.header) runs[segment.header->run_number].push_back(std::move(segment));
  }
  while (!runs.empty()) {
    std::vector<Segment>& run = std::prev(runs.end())->second;
    std::map<std::uint32_t, int> ranks;
    for (const Segment& segment : run) ++ranks[segment.header->rank];
    if (ranks.size() == run.front().header->ranks) {
      std::ranges::sort(run, {}, [](const Segment& segment) {
        return std::pair(segment.header->rank, segment.header->first_round);
      });
      return std::move(run);
    }
    runs.erase(std::prev(runs.end()));
  }
  return {};
}

// Returns from which round on what is left of the newest run has to be there.
std::uint64_t RoundsThatAreKnown(const std::vector<Segment>& run) {
  std::uint64_t known = run.front().header->follows_round;
  for (const Segment& segment : run) {
    if (segment.header) known = std::max(known, CompleteRound(segment));
  }
  return known;
}

}  // namespace

std::optional<Damage> DamageCheckpoint(Random& random, SimFiles& files) {
  auto ids = files.List(std::string(kCheckpoints));
  if (ids.ok()) std::erase_if(*ids, [](const std::string& id) { return id.starts_with('.'); });
  if (!ids.ok() || ids->empty()) return std::nullopt;
  std::vector<std::string> paths;
  // Mostly the newest.
  const std::string id = random.OneIn(3) ? random.OneOf(*ids) : ids->back();
  AddFiles(files, std::string(kCheckpoints) + "/" + id, paths);
  if (paths.empty()) return std::nullopt;
  Damage damage{.path = random.OneOf(paths), .bytes = {}};
  const auto file = files.Open(damage.path);
  if (!file.ok() || (*file)->size() == 0) return std::nullopt;
  damage.bytes = files.Contents(damage.path);
  std::vector<std::byte> bytes = damage.bytes;
  switch (random.Below(3)) {
    case 0:
      bytes[random.Below(bytes.size())] ^= std::byte{1} << random.Below(8);
      break;
    case 1:
      bytes.resize(random.Below(bytes.size()));
      break;
    default:
      bytes.clear();
  }
  files.SetContents(damage.path, std::move(bytes));
  return damage;
}

std::optional<Damage> DamageJournal(Random& random, SimFiles& files, std::uint64_t recovered) {
  std::vector<Segment> run = NewestRun(files);
  if (run.empty() || run.front().header->follows_round < recovered) return std::nullopt;
  std::vector<std::string> paths;  // of all runs
  AddFiles(files, std::string(kJournal), paths);
  std::erase_if(paths, [](const std::string& path) { return !path.ends_with(".journal"); });
  const std::string path = random.OneIn(2) ? random.OneOf(paths) : random.OneOf(run).path;
  Damage damage{.path = path, .bytes = files.Contents(path), .of_journal = true};
  std::size_t used = damage.bytes.size();  // what lies behind is space that was taken ahead
  while (used > 0 && damage.bytes[used - 1] == std::byte{0}) --used;
  if (used == 0) return std::nullopt;
  // A checksum of random bytes may end with zeros, and a seed has to be the same every time.
  used = std::min((used + 7) / 8 * 8, damage.bytes.size());
  std::vector<std::byte> bytes = damage.bytes;
  bool reads_on = false;  // something is left behind the damage
  std::size_t at = 0;
  switch (random.Below(3)) {
    case 0:
      at = DrawPlace(random, ReadSegment(files, path), used);
      bytes[at] ^= std::byte{1} << random.Below(8);
      reads_on = true;
      break;
    case 1:
      bytes.resize(random.Below(used));
      if (random.OneIn(2)) bytes.resize(damage.bytes.size());  // the space stays
      break;
    default:
      bytes.clear();
  }
  bytes.empty() ? files.Lose(path) : files.SetContents(path, bytes);

  const auto hit = std::ranges::find(run, path, &Segment::path);
  if (hit == run.end()) return damage;
  const auto next = std::next(hit);
  const bool is_end = next == run.end() || next->header->rank != hit->header->rank;
  hit->bytes = std::move(bytes);
  const bool header_is_hit = reads_on && at < kSegmentHeaderBytes;
  if (!is_end || header_is_hit || (reads_on && ShowsWhatWasThere(*hit, at))) return damage;
  damage.may_lose_behind = RoundsThatAreKnown(run);
  return damage;
}

void Mend(SimFiles& files, const Damage& damage) { files.SetContents(damage.path, damage.bytes); }

}  // namespace slotwise::sim
