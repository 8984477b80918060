// Ranks exchange the facts that each needs before it serves.
#include "server/start_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace slotwise {
namespace {

constexpr int kRanks = 3;

// The ranks of this process, a thread each, meet here.
struct Meeting {
  std::barrier<> all{kRanks};
  std::vector<std::byte> bytes;
};

class ThreadCollective final : public Collective {
 public:
  ThreadCollective(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

  Rank rank() const override { return Rank{rank_}; }
  int size() const override { return kRanks; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return kRanks; }
  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (rank_ == 0) meeting_.bytes.resize(all.size());
    meeting_.all.arrive_and_wait();
    std::ranges::copy(mine, meeting_.bytes.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank_);
    meeting_.all.arrive_and_wait();
    std::ranges::copy(meeting_.bytes, all.begin());
    meeting_.all.arrive_and_wait();
  }
  void AllReduceSum(std::span<std::uint64_t> /*values*/) override { FAIL() << "no start needs it"; }
  void Wake(std::uint64_t /*wait*/) override {}
  bool PollWake(std::uint64_t /*wait*/) override { return false; }

 private:
  Meeting& meeting_;
  const int rank_;
};

// Returns what each rank makes of a call.
template <class Call>
auto OnAllRanks(const Call& call) {
  Meeting meeting;
  std::vector<std::future<decltype(call(std::declval<Collective&>()))>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&meeting, &call, rank] {
      ThreadCollective collective(meeting, rank);
      return call(collective);
    }));
  }
  std::vector<decltype(call(std::declval<Collective&>()))> all;
  for (auto& rank : ranks) all.push_back(rank.get());
  return all;
}

TEST(StartUp, EveryRankLearnsEveryRanksPlace) {
  const auto place_of = [](int rank) {
    const std::string number = std::to_string(rank);
    return RankPlace{.address = "host-" + number + ":1",
                     .device = "cpu" + number,
                     .local = "local-" + number,
                     .gpu = "gpu-" + number,
                     .local_user = 1000 + static_cast<std::uint32_t>(rank),
                     .metrics = "host-" + number + ":2"};
  };
  const auto all = OnAllRanks([&](Collective& collective) {
    return AgreeOnPlaces(collective, Result<RankPlace>(place_of(Value(collective.rank()))));
  });
  for (const auto& places : all) {
    ASSERT_TRUE(places.has_value());
    ASSERT_EQ(places->size(), static_cast<std::size_t>(kRanks));
    for (int rank = 0; rank < kRanks; ++rank) {
      const RankPlace& place = places->at(static_cast<std::size_t>(rank));
      const RankPlace expected = place_of(rank);
      EXPECT_EQ(place.address, expected.address);
      EXPECT_EQ(place.device, expected.device);
      EXPECT_EQ(place.local, expected.local);
      EXPECT_EQ(place.gpu, expected.gpu);
      EXPECT_EQ(place.local_user, expected.local_user);
      EXPECT_EQ(place.metrics, expected.metrics);
    }
  }
}

TEST(StartUp, NoRankServesWhereOneHasNoPlace) {
  const auto all = OnAllRanks([](Collective& collective) {
    const bool fails = Value(collective.rank()) == 1;
    return AgreeOnPlaces(collective, fails ? Result<RankPlace>(FailedPrecondition("no room")) : RankPlace());
  });
  for (const auto& places : all) EXPECT_FALSE(places.has_value());
}

// A caller that knows it may read all that ranks count.
TEST(StartUp, RanksHaveATokenThatCannotBeGuessed) {
  std::set<std::string> drawn;
  for (int i = 0; i < 20; ++i) {
    const auto tokens = OnAllRanks([](Collective& collective) { return DrawPeersToken(collective); });
    EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), 1U);
    const std::string& token = tokens.front();
    EXPECT_EQ(token.size(), 64U);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
    for (std::size_t at = 0; at + 8 <= token.size(); at += 8) drawn.insert(token.substr(at, 8));
  }
  EXPECT_GE(drawn.size(), 155U) << "of 160 words, which are hardly ever the same";
}

}  // namespace
}  // namespace slotwise
