// The batch that a header carries is that of its lookups, on every rank that reads it.
#include "server/engine/carried_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/lookup.h"

namespace slotwise {
namespace {

template <class T>
BatchArray<T> ArrayOf(const std::vector<T>& values) {
  BatchArray<T> array(values.size());
  std::ranges::copy(values, array.data());
  return array;
}

template <class T>
std::vector<T> Read(const std::byte* from, std::size_t size) {
  std::vector<T> values(size);
  if (size > 0) std::memcpy(values.data(), from, size * sizeof(T));
  return values;
}

struct Bags {
  std::vector<Key> keys;
  std::vector<std::uint32_t> offsets{0};
  std::vector<float> weights;
};

Bags Draw(std::mt19937_64& random, std::size_t bags, bool weighted) {
  Bags drawn;
  for (std::size_t b = 0; b < bags; ++b) {
    for (std::uint64_t k = random() % 4; k > 0; --k) {
      drawn.keys.push_back(Key{random()});
      if (weighted) drawn.weights.push_back(static_cast<float>(random() % 100));
    }
    drawn.offsets.push_back(static_cast<std::uint32_t>(drawn.keys.size()));
  }
  return drawn;
}

// A rank, which proposes.
class Announcer {
 public:
  void Lookup(const Bags& bags, MemoryKind memory = MemoryKind::kHost) {
    LookupRequest request;
    request.batch = {.samples = static_cast<std::uint32_t>(bags.offsets.size() - 1),
                     .keys = ArrayOf(bags.keys),
                     .offsets = ArrayOf(bags.offsets),
                     .weights = ArrayOf(bags.weights),
                     .memory = memory};
    Propose(std::move(request));
  }
  void Propose(Request request) {
    Proposal& proposal = header.proposals[header.count++];
    proposal = request.proposal();
    proposal.ticket = tickets.Add(std::move(request));
  }
  RoundPart PartOf(std::size_t place, int rank) const {
    const Proposal& proposal = header.proposals[place];
    return {.ticket = {Rank{rank}, proposal.ticket},
            .samples = proposal.samples,
            .keys = proposal.keys,
            .weighted = proposal.weighted};
  }

  Header header;
  PendingRequests tickets;
};

void ExpectCarried(const CarriedBatches& carried, const RoundPart& part, const Bags& bags) {
  ASSERT_TRUE(carried.Has(part));
  const std::size_t size = bags.offsets.size() - 1;
  const CarriedBatches::Arrays arrays = carried.Of(part, size);
  EXPECT_EQ(Read<Key>(arrays.keys, bags.keys.size()), bags.keys);
  EXPECT_EQ(Read<std::uint32_t>(arrays.offsets, size),
            std::vector<std::uint32_t>(bags.offsets.begin(), bags.offsets.end() - 1));
  EXPECT_EQ(Read<float>(arrays.weights, bags.weights.size()), bags.weights);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrays.keys) % alignof(Key), 0U);
}

TEST(CarriedBatches, AreWhatTheLookupsOfEveryRankBring) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<Announcer> ranks(3);
    std::vector<std::vector<Bags>> bags(3);
    std::vector<Header> headers(3);  // of a turn before, as far as nothing new has come
    std::memset(static_cast<void*>(headers.data()), 0x5a, 3 * sizeof(Header));
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::uint64_t before = random() % 3; before > 0; --before)
        ranks[r].tickets.Add(DropTableRequest{});  // tickets do not begin at 1
      for (std::uint64_t count = random() % 6; count > 0; --count)
        ranks[r].Lookup(bags[r].emplace_back(Draw(random, random() % 20, random() % 2 == 0)));
      CarryBatches(ranks[r].header, ranks[r].tickets);
      std::memcpy(static_cast<void*>(&headers[r]), &ranks[r].header, UsedBytes(ranks[r].header));
    }
    const CarriedBatches carried(headers);
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t b = 0; b < bags[r].size(); ++b)
        ExpectCarried(carried, ranks[r].PartOf(b, static_cast<int>(r)), bags[r][b]);
    }
  }
}

TEST(CarriedBatches, OnlyThoseThatFitInWhatAnnouncementsLeave) {
  constexpr std::size_t kRoom = Header::kMost * sizeof(Proposal);
  for (const std::size_t others : {std::size_t{0}, Header::kMost - 2}) {
    const std::size_t left = kRoom - (others + 1) * sizeof(Proposal);
    for (const std::size_t beyond : {0, 1}) {
      Announcer rank;
      for (std::size_t i = 0; i < others; ++i) rank.Propose(DropTableRequest{});
      // A bag of as many keys as there is room for beside its offset, or one more.
      Bags bags;
      bags.keys.assign((left - sizeof(std::uint32_t)) / sizeof(Key) + beyond, Key{77});
      bags.offsets.push_back(static_cast<std::uint32_t>(bags.keys.size()));
      rank.Lookup(bags);
      CarryBatches(rank.header, rank.tickets);
      const CarriedBatches carried({&rank.header, 1});
      const RoundPart part = rank.PartOf(others, 0);
      EXPECT_LE(UsedBytes(rank.header), sizeof(Header));
      EXPECT_EQ(carried.Has(part), beyond == 0) << others << " others, " << bags.keys.size() << " keys";
      if (beyond == 0) ExpectCarried(carried, part, bags);
    }
  }
}

TEST(CarriedBatches, NeitherOtherOperationsNorArraysOfADevice) {
  std::mt19937_64 random(3);
  const Bags bags = Draw(random, 2, false);
  Announcer rank;
  rank.Propose(DropTableRequest{});
  rank.Lookup(bags, MemoryKind::kDevice);
  rank.Lookup(bags);
  CarryBatches(rank.header, rank.tickets);
  const CarriedBatches carried({&rank.header, 1});
  EXPECT_FALSE(carried.Has(rank.PartOf(0, 0)));
  EXPECT_FALSE(carried.Has(rank.PartOf(1, 0)));
  ExpectCarried(carried, rank.PartOf(2, 0), bags);
}

TEST(CarriedBatches, OfOneDecisionAlone) {
  std::mt19937_64 random(3);
  Announcer rank;
  rank.Lookup(Draw(random, 2, false));
  const RoundPart before = rank.PartOf(0, 0);
  rank.header = {};
  rank.Lookup(Draw(random, 2, false));
  CarryBatches(rank.header, rank.tickets);
  const CarriedBatches carried({&rank.header, 1});
  RoundPart later = rank.PartOf(0, 0);
  EXPECT_TRUE(carried.Has(later));
  EXPECT_FALSE(carried.Has(before));
  ++later.ticket.number;
  EXPECT_FALSE(carried.Has(later));
  EXPECT_FALSE(carried.Has(rank.PartOf(0, 1))) << "a rank that said nothing";
  EXPECT_FALSE(CarriedBatches().Has(before));
}

}  // namespace
}  // namespace slotwise
