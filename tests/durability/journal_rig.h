// Shared code of the journal's tests: journals of several ranks on simulated files. The bodies of records
// depend on rank and round.
#ifndef SLOTWISE_TESTS_DURABILITY_JOURNAL_RIG_H_
#define SLOTWISE_TESTS_DURABILITY_JOURNAL_RIG_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/durability/journal.h"
#include "server/durability/journal_reader.h"
#include "tests/durability/sim_files.h"
#include "tests/support/status.h"

namespace slotwise {

inline constexpr std::uint64_t kLineage = 77;
inline const std::string kFolder = "data/journal";

using Bytes = std::vector<std::byte>;

// Returns the body of a rank's record of a round: 0 to 1200 bytes.
inline Bytes BodyOf(std::uint32_t rank, std::uint64_t round) {
  Bytes body((round * 37 + rank * 11) % 97 * (round % 5 == 0 ? 12 : 1));
  for (std::size_t i = 0; i < body.size(); ++i) {
    body[i] = static_cast<std::byte>((round * 131 + rank * 17 + i * i) & 0xff);
  }
  return body;
}

inline std::uint32_t KindOf(std::uint64_t round) { return static_cast<std::uint32_t>(round % 7); }

// Returns bytes as one or two pieces, which own them.
inline std::vector<JournalPiece> PiecesOf(const Bytes& bytes) {
  const auto owner = std::make_shared<const Bytes>(bytes);
  const std::span<const std::byte> all(*owner);
  const std::size_t cut = all.size() / 3;
  return {{all.first(cut), owner}, {all.subspan(cut), owner}};
}

// Returns the offset of a round's record in a rank's first segment.
inline std::uint64_t RecordAt(std::uint64_t round, std::uint32_t rank = 0) {
  std::uint64_t at = kSegmentHeaderBytes;
  for (std::uint64_t before = 1; before < round; ++before) at += BytesOfRecord(BodyOf(rank, before).size());
  return at;
}

// Appends a round as an engine does. Returns the result of Reserve.
inline Status AppendRound(Journal& journal, std::uint32_t rank, std::uint64_t round) {
  const Bytes body = BodyOf(rank, round);
  if (Status status = journal.Reserve(body.size()); !status.ok()) return status;
  journal.Append(round, KindOf(round), PiecesOf(body));
  return Status();
}

struct RankOfTest {
  void Append(std::uint64_t round) {
    const Status status = AppendRound(*journal, number, round);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Writes rounds, each in a group of its own.
  void Write(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t round = first; round <= last; ++round) {
      Append(round);
      journal->WriteQueued();
    }
  }
  void Write(std::uint64_t round) { Write(round, round); }

  std::unique_ptr<Journal> journal = nullptr;
  std::uint32_t number = 0;
  std::vector<std::uint64_t> published = {};
  std::vector<std::string> failures = {};
};

inline JournalOptions OptionsOf(std::uint32_t rank, std::uint32_t ranks, std::uint64_t instance,
                                const JournalPosition& follows = {}) {
  return {.folder = kFolder,
          .rank = rank,
          .ranks = ranks,
          .instance = instance,
          .lineage = kLineage,
          .seed = instance * 1000003 + rank,
          .follows = follows,
          .reserve_bytes = 1024,
          .segment_bytes = 4096,
          .max_queued_bytes = 1 << 20};
}

inline Result<std::unique_ptr<RankOfTest>> StartRank(FileSystem& files, const JournalOptions& options) {
  auto rank = std::make_unique<RankOfTest>();
  RankOfTest& place = *rank;
  place.number = options.rank;
  auto journal = Journal::Start(
      files, options,
      {.on_durable = [&place](std::uint64_t round) { place.published.push_back(round); },
       .on_failure = [&place](const std::string& reason) { place.failures.push_back(reason); }});
  if (!journal.ok()) return journal.status();
  rank->journal = std::move(*journal);
  return rank;
}

// The result of a recovery. Recover checks that the bodies of all rounds are those that were written.
struct Recovered {
  Status status;
  JournalSet set;
  std::vector<std::uint64_t> rounds;
};

inline Recovered Recover(FileSystem& files, std::uint64_t covered = 0, std::uint64_t lineage = kLineage) {
  Recovered recovered;
  auto set = ReadJournals(files, kFolder, lineage, covered);
  recovered.status = set.status();
  if (!set.ok()) return recovered;
  recovered.set = *set;
  JournalRounds rounds(files, *set);
  while (true) {
    auto more = rounds.Next();
    recovered.status = more.status();
    if (!more.ok() || !*more) return recovered;
    for (std::uint32_t rank = 0; rank < rounds.ranks(); ++rank) {
      Bytes body(rounds.body_bytes(rank));
      recovered.status = rounds.ReadBody(rank, body);
      if (!recovered.status.ok()) return recovered;
      EXPECT_EQ(body, BodyOf(rank, rounds.round())) << "rank " << rank << " round " << rounds.round();
      EXPECT_EQ(rounds.kind(rank), KindOf(rounds.round()));
    }
    recovered.rounds.push_back(rounds.round());
  }
}

inline void MakeDataFolder(FileSystem& files) {
  EXPECT_TRUE(files.MakeFolder("data").ok());
  EXPECT_TRUE(files.SyncFolder("").ok());
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() { MakeDataFolder(files_); }

  std::unique_ptr<RankOfTest> Start(const JournalOptions& options = OptionsOf(0, 1, 5)) {
    return test::Must(StartRank(files_, options));
  }
  std::vector<std::string> Segments(std::uint32_t rank = 0) {
    auto names = files_.List(kFolder + "/" + RankFolder(rank));
    return names.ok() ? *names : std::vector<std::string>();
  }

  SimFiles files_;
};

inline std::vector<std::uint64_t> RoundsFromTo(std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> rounds;
  for (std::uint64_t round = first; round <= last; ++round) rounds.push_back(round);
  return rounds;
}

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_DURABILITY_JOURNAL_RIG_H_
