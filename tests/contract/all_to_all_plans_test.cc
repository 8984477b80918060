// Each all-to-all plan holds all that its batch needs, however many plans are in use at once.
#include <cstddef>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"

namespace slotwise::test {
namespace {

constexpr int kRanks = 3;
constexpr std::uint32_t kDim = 8;

class TrafficPlans : public ContractTest {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }

  std::unique_ptr<Shard> MakeShard(int rank) {
    return std::move(
        *device().MakeShard(MakeOptions(kDim), {Rank{rank}, kRanks, EvenBucketMap(kRanks), kTestSecret}));
  }
};
SLOTWISE_ON_EVERY_BACKEND(TrafficPlans);

// A batch in the middle of its way through rank 1's shard, and what its traffic has to be.
class Travelling {
 public:
  Travelling(Device& device, Random& random, std::uint32_t bags, std::uint32_t max_bag)
      : device_(device),
        batch_(RandomBatch(random, {.bags = bags, .max_bag = max_bag})),
        on_device_(device, batch_),
        bags_of_{bags / 2, bags / 3, bags - bags / 2 - bags / 3},
        plan_(device.MakeAllToAllPlan()) {
    const BucketMap owners = EvenBucketMap(kRanks);
    owned_.resize(kRanks);
    received_.resize(kRanks);
    owners_of_.resize(bags);
    std::size_t bag = 0;
    for (std::size_t of = 0; of < kRanks; ++of) {
      for (std::size_t end = bag + bags_of_[of]; bag < end; ++bag) {
        for (std::uint32_t i = batch_.offsets[bag]; i < batch_.offsets[bag + 1]; ++i) {
          owners_of_[bag].insert(owners[OracleBucket(Value(batch_.keys[i]))]);
        }
        owned_[of] += owners_of_[bag].count(kMe);
        if (of != kMe) continue;
        for (const int owner : owners_of_[bag]) ++received_[static_cast<std::size_t>(owner)];
      }
    }
    arrived_ = RandomGradients(random, std::reduce(received_.begin(), received_.end()) * kDim);
  }

  static constexpr std::size_t kMe = 1;

  AllToAllPlan& plan() { return *plan_; }

  InsertedBatch Begin(Shard& shard) {
    InsertedBatch batch = std::move(*shard.PrepareInsert(on_device_.View()).Insert());
    batch.PlanAllToAll(bags_of_, *plan_);
    return batch;
  }
  void BeginToFind(Shard& shard) { shard.PrepareFind(on_device_.View())->PlanAllToAll(bags_of_, *plan_); }

  void ExpectCounts() {
    EXPECT_EQ(plan_->Traffic().with_keys_here, owned_);
    EXPECT_EQ(plan_->Traffic().with_keys_there, received_);
  }

  // Adds up what `arrived_` says that the ranks have sent.
  void ExpectSums() {
    DeviceArray<float> arrived(device_, std::span<const float>(arrived_));
    const std::vector<float> unwritten(bags_of_[kMe] * kDim, std::numeric_limits<float>::quiet_NaN());
    DeviceArray<float> sums(device_, std::span<const float>(unwritten));
    plan_->AddReceived(device_.WorkStream(), arrived.data(), sums.data());
    EXPECT_TRUE(SameBytes(sums.Download(), ExpectedSums(), kDim));
  }

  // Of bags of which this rank owns a key, in the order of the batch.
  void ExpectSent(FoundBatch& batch) {
    const std::vector<float> all_pooled = Pooled(batch);
    const std::vector<float> unwritten(std::reduce(owned_.begin(), owned_.end()) * kDim,
                                       std::numeric_limits<float>::quiet_NaN());
    DeviceArray<float> sent(device_, std::span<const float>(unwritten));
    batch.PoolToSend(*plan_, sent.data());
    std::vector<float> expected;
    for (std::size_t bag = 0; bag < owners_of_.size(); ++bag) {
      if (!owners_of_[bag].contains(kMe)) continue;
      const auto pooled = all_pooled.begin() + static_cast<std::ptrdiff_t>(bag * kDim);
      expected.insert(expected.end(), pooled, pooled + kDim);
    }
    EXPECT_TRUE(SameBytes(sent.Download(), expected, kDim));
  }

 private:
  std::vector<float> Pooled(FoundBatch& batch) {
    DeviceArray<float> pooled(device_, std::span<const float>(std::vector<float>(owners_of_.size() * kDim)));
    batch.Pool(pooled.data());
    return pooled.Download();
  }

  // A bag's copies lie in the order of the ranks, and of a rank's in the order of the bags.
  std::vector<float> ExpectedSums() const {
    std::vector<float> sums(bags_of_[kMe] * kDim, 0.0F);
    std::size_t at = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (std::size_t bag = 0; bag < bags_of_[kMe]; ++bag) {
        if (!owners_of_[bags_of_[0] + bag].contains(rank)) continue;
        for (std::uint32_t j = 0; j < kDim; ++j) sums[bag * kDim + j] += arrived_[at++];
      }
    }
    return sums;
  }

  Device& device_;
  Batch batch_;
  DeviceBatch on_device_;
  std::vector<std::size_t> bags_of_;
  std::vector<std::set<int>> owners_of_;  // of each bag
  std::vector<std::size_t> owned_, received_;
  std::vector<float> arrived_;
  std::unique_ptr<AllToAllPlan> plan_;
};

// Bags of one batch come back while the next one's traffic is planned, and the next but one's.
TEST_P(TrafficPlans, OfSeveralBatchesShareNothing) {
  Random random(150);
  const auto shard = MakeShard(Travelling::kMe);
  std::vector<std::unique_ptr<Travelling>> batches;
  for (const std::uint32_t bags : {60, 45, 90}) {
    batches.push_back(std::make_unique<Travelling>(device(), random, bags, 4));
    InsertedBatch batch = batches.back()->Begin(*shard);
    batches.back()->ExpectSent(batch);
  }
  for (const auto& batch : batches) {
    batch->ExpectCounts();
    batch->ExpectSums();
  }
}

// Rounds on two tables: each shard has a batch of its own under way, and sends by its own plan.
TEST_P(TrafficPlans, OfSeveralShardsShareNothing) {
  Random random(151);
  const auto ads = MakeShard(Travelling::kMe);
  const auto users = MakeShard(Travelling::kMe);
  Travelling of_ads(device(), random, 70, 3);
  Travelling of_users(device(), random, 40, 5);
  InsertedBatch ads_batch = of_ads.Begin(*ads);
  InsertedBatch users_batch = of_users.Begin(*users);
  of_ads.ExpectSent(ads_batch);
  of_users.ExpectSent(users_batch);
  of_ads.ExpectCounts();
  of_ads.ExpectSums();
  of_users.ExpectSums();
}

TEST_P(TrafficPlans, AreFilledAgainForTheNextBatch) {
  Random random(152);
  const auto shard = MakeShard(Travelling::kMe);
  Travelling first(device(), random, 50, 4);
  first.Begin(*shard);
  first.ExpectSums();
  first.BeginToFind(*shard);
  first.ExpectCounts();
  first.ExpectSums();
}

TEST_P(TrafficPlans, ServeTheirOwnBatchAlone) {
  Random random(153);
  const auto shard = MakeShard(Travelling::kMe);
  Travelling first(device(), random, 50, 4);
  Travelling second(device(), random, 50, 4);
  first.Begin(*shard);
  second.Begin(*shard);
  const DigestSums before = shard->Digest();
  DeviceArray<float> values(device(), std::span<const float>(std::vector<float>(std::size_t{150} * kDim)));
  const auto unfilled = device().MakeAllToAllPlan();
  for (AllToAllPlan* const plan : {&first.plan(), unfilled.get()}) {
    InsertedBatch batch = second.Begin(*shard);
    EXPECT_THROW(batch.PoolToSend(*plan, values.data()), std::logic_error);
    EXPECT_THROW(batch.GradientsToSend(*plan, values.data(), values.data()), std::logic_error);
    second.ExpectSent(batch);
    EXPECT_THROW(std::move(batch).UpdateFromReceived(*plan, values.data(), {.learning_rate = 1}),
                 std::logic_error);
    EXPECT_EQ(shard->Digest(), before);
  }
}

}  // namespace
}  // namespace slotwise::test
