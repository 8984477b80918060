// A shard's calls have an order, and a call that comes too soon or too late is refused with nothing changed.
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"

namespace slotwise::test {
namespace {

constexpr std::uint32_t kDim = 4;
constexpr StepScalars kStep{.learning_rate = 1};

class OrderOfCalls : public ContractTest {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }

  std::unique_ptr<Shard> MakeShard(int ranks) {
    return std::move(
        *device().MakeShard(MakeOptions(kDim), {Rank{0}, ranks, EvenBucketMap(ranks), kTestSecret}));
  }

  DeviceArray<float> Values() {
    const std::vector<float> ones(batch_.bags() * std::size_t{kDim}, 1.0F);
    return DeviceArray<float>(device(), std::span<const float>(ones));
  }

  void Prepare(Shard& shard, DeviceBatch& batch, bool insert) {
    ASSERT_TRUE(shard.Prepare(batch.View(), insert).ok());
  }

  // All that changes rows by a batch.
  void ExpectNoUpdate(Shard& shard, const std::string& when) {
    SCOPED_TRACE(when);
    const DigestSums before = shard.Digest();
    DeviceArray<float> values = Values();
    EXPECT_THROW(shard.Update(values.data(), kStep), std::logic_error);
    EXPECT_THROW(shard.Assign(values.data(), kDim), std::logic_error);
    EXPECT_EQ(shard.Digest(), before);
  }
  void ExpectNoPool(Shard& shard, const std::string& when) {
    DeviceArray<float> values = Values();
    EXPECT_THROW(shard.Pool(values.data()), std::logic_error) << when;
  }

  const Batch batch_ = OneKeyABag(KeyRange(0, 40));
};
SLOTWISE_ON_EVERY_BACKEND(OrderOfCalls);

TEST_P(OrderOfCalls, BeginsWithPrepare) {
  for (const int ranks : {1, 2}) {
    const auto shard = MakeShard(ranks);
    ExpectNoUpdate(*shard, "no batch");
    ExpectNoPool(*shard, "no batch");
    EXPECT_THROW(shard->Insert(), std::logic_error);
    EXPECT_THROW(shard->ExactNewRows(), std::logic_error);
    EXPECT_THROW(shard->PrepareErase().ok(), std::logic_error);
    EXPECT_THROW(shard->Erase(), std::logic_error);
    const auto plan = device().MakeTrafficPlan();
    EXPECT_THROW(shard->PlanTraffic(std::vector<std::size_t>{40, 0}, *plan), std::logic_error);
    DeviceArray<float> values = Values();
    EXPECT_THROW(shard->GradientsToSend(*plan, values.data(), values.data()), std::logic_error);
  }
}

TEST_P(OrderOfCalls, ErasesWhatRoomWasMadeFor) {
  for (const int ranks : {1, 2}) {
    const auto shard = MakeShard(ranks);
    DeviceBatch batch(device(), batch_);
    Prepare(*shard, batch, true);
    shard->Insert();
    EXPECT_THROW(shard->Erase(), std::logic_error) << "no room was made";
    Prepare(*shard, batch, false);
    ASSERT_TRUE(shard->PrepareErase().ok());
    EXPECT_GT(shard->Erase(), 0U);
    EXPECT_THROW(shard->Erase(), std::logic_error) << "they are erased";
  }
}

TEST_P(OrderOfCalls, UpdatesWhatWasInserted) {
  for (const int ranks : {1, 2}) {
    const auto shard = MakeShard(ranks);
    DeviceBatch batch(device(), batch_);
    Prepare(*shard, batch, false);
    ExpectNoUpdate(*shard, "only looked up");
    EXPECT_THROW(shard->Insert(), std::logic_error) << "no room was made";
    Prepare(*shard, batch, true);
    ExpectNoUpdate(*shard, "not inserted yet");
    ExpectNoPool(*shard, "not inserted yet");
    shard->Insert();
    DeviceArray<float> values = Values();
    shard->Pool(values.data());
    shard->Update(values.data(), kStep);
  }
}

TEST_P(OrderOfCalls, SpendsABatchWithItsUpdate) {
  for (const int ranks : {1, 2}) {
    const auto shard = MakeShard(ranks);
    const auto plan = device().MakeTrafficPlan();
    DeviceBatch batch(device(), batch_);
    DeviceArray<float> values = Values();
    const auto prepare = [&] {
      Prepare(*shard, batch, true);
      shard->Insert();
      std::vector<std::size_t> bags_of(static_cast<std::size_t>(ranks), 0);
      bags_of[0] = batch_.bags();
      shard->PlanTraffic(bags_of, *plan);
    };
    const auto expect_spent = [&](const std::string& after) {
      ExpectNoUpdate(*shard, after);
      ExpectNoPool(*shard, after);
      EXPECT_THROW(shard->PoolToSend(*plan, values.data()), std::logic_error) << after;
      EXPECT_THROW(shard->UpdateFromReceived(*plan, values.data(), kStep), std::logic_error) << after;
    };
    prepare();
    shard->Update(values.data(), kStep);
    expect_spent("Update");
    prepare();
    shard->UpdateFromReceived(*plan, values.data(), kStep);
    expect_spent("UpdateFromReceived");
    prepare();
    shard->Assign(values.data(), kDim);
    expect_spent("Assign");
    Prepare(*shard, batch, false);
    ASSERT_TRUE(shard->PrepareErase().ok());
    EXPECT_GT(shard->Erase(), 0u);
    expect_spent("Erase");
  }
}

// A batch of which this rank has no keys is spent like any other.
TEST_P(OrderOfCalls, SpendsAnEmptyBatchToo) {
  const auto shard = MakeShard(1);
  DeviceBatch nothing(device(), Batch());
  Prepare(*shard, nothing, true);
  shard->Insert();
  shard->Update(nullptr, kStep);
  EXPECT_THROW(shard->Update(nullptr, kStep), std::logic_error);
}

}  // namespace
}  // namespace slotwise::test
