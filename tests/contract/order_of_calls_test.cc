// A batch's calls have an order, which the types of its handles enforce. A wrong use that types cannot
// prevent is refused and changes nothing: the use of a spent batch, or of one after the shard has prepared
// the next.
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"

namespace slotwise::test {
namespace {

constexpr std::uint32_t kDim = 4;
constexpr StepScalars kStep{.learning_rate = 1};

// Only batches with rows pool, and only inserted ones change rows.
template <class Batch>
concept Pools = requires(Batch batch, Numbers out) { batch.Pool(out); };
template <class Batch>
concept Updates = requires(Batch batch) { std::move(batch).Update(nullptr, kStep); };
template <class Batch>
concept Assigns = requires(Batch batch) { std::move(batch).Assign(nullptr, kDim); };
template <class Batch>
concept Erases = requires(Batch batch) { std::move(batch).Erase(); };
template <class Batch>
concept Inserts = requires(Batch batch) { std::move(batch).BeginInsert(); };

static_assert(!Pools<Preparing> && !Pools<NewBatch> && !Pools<Inserting> && !Pools<GroupedBatch>);
static_assert(Pools<FoundBatch> && Pools<InsertedBatch> && Pools<ErasableBatch>);
static_assert(!Updates<FoundBatch> && !Updates<NewBatch> && !Updates<Inserting> && !Updates<ErasableBatch>);
static_assert(Updates<InsertedBatch> && Updates<GroupedBatch>);
static_assert(!Assigns<FoundBatch> && !Assigns<NewBatch> && !Assigns<GroupedBatch> && Assigns<InsertedBatch>);
static_assert(!Erases<FoundBatch> && !Erases<InsertedBatch> && Erases<ErasableBatch>);
static_assert(!Inserts<FoundBatch> && !Inserts<Preparing> && !Inserts<InsertedBatch> && Inserts<NewBatch>);

// What spends a handle takes it, and no other code has a copy or makes one of another stage.
static_assert(
    !std::is_invocable_v<decltype(&InsertedBatch::Update), InsertedBatch&, const float*, StepScalars>);
static_assert(!std::is_invocable_v<decltype(&NewBatch::BeginInsert), NewBatch&>);
static_assert(!std::is_copy_constructible_v<Preparing> && !std::is_copy_constructible_v<NewBatch> &&
              !std::is_copy_constructible_v<InsertedBatch>);
static_assert(!std::is_constructible_v<InsertedBatch, FoundBatch> &&
              !std::is_constructible_v<InsertedBatch, NewBatch>);
static_assert(std::is_constructible_v<FoundBatch, InsertedBatch>, "rows that were inserted are found");

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

  // Expects that no call of a batch is answered, and that nothing changes.
  // NOLINTBEGIN(bugprone-use-after-move)
  void ExpectRefused(Shard& shard, InsertedBatch& batch, AllToAllPlan& plan, const std::string& when) {
    SCOPED_TRACE(when);
    const DigestSums before = shard.Digest();
    DeviceArray<float> values = Values();
    EXPECT_THROW(batch.Pool(values.data()), std::logic_error);
    EXPECT_THROW(batch.PlanAllToAll(std::vector<std::size_t>{40, 0}, plan), std::logic_error);
    EXPECT_THROW(batch.PoolToSend(plan, values.data()), std::logic_error);
    EXPECT_THROW(batch.GradientsToSend(plan, values.data(), values.data()), std::logic_error);
    EXPECT_THROW(batch.InsertedKeys(), std::logic_error);
    EXPECT_THROW(batch.CopyBeforeWrite(), std::logic_error);
    EXPECT_THROW(std::move(batch).GroupRows(), std::logic_error);
    EXPECT_THROW(std::move(batch).Update(values.data(), kStep), std::logic_error);
    EXPECT_THROW(std::move(batch).UpdateFromReceived(plan, values.data(), kStep), std::logic_error);
    EXPECT_THROW(std::move(batch).Assign(values.data(), kDim), std::logic_error);
    EXPECT_EQ(shard.Digest(), before);
  }
  // NOLINTEND(bugprone-use-after-move)

  const Batch batch_ = OneKeyABag(KeyRange(0, 40));
};
SLOTWISE_ON_EVERY_BACKEND(OrderOfCalls);

// Spent handles are used on purpose.
// NOLINTBEGIN(bugprone-use-after-move)
TEST_P(OrderOfCalls, SpendsABatchWithItsUpdate) {
  for (const int ranks : {1, 2}) {
    const auto shard = MakeShard(ranks);
    const auto plan = device().MakeAllToAllPlan();
    DeviceBatch on_device(device(), batch_);
    DeviceArray<float> values = Values();
    const auto prepare = [&] {
      InsertedBatch batch = std::move(*shard->PrepareInsert(on_device.View()).Insert());
      std::vector<std::size_t> bags_of(static_cast<std::size_t>(ranks), 0);
      bags_of[0] = batch_.bags();
      batch.PlanAllToAll(bags_of, *plan);
      return batch;
    };
    InsertedBatch updated = prepare();
    std::move(updated).Update(values.data(), kStep);
    ExpectRefused(*shard, updated, *plan, "Update");
    InsertedBatch received = prepare();
    std::move(received).UpdateFromReceived(*plan, values.data(), kStep);
    ExpectRefused(*shard, received, *plan, "UpdateFromReceived");
    InsertedBatch assigned = prepare();
    std::move(assigned).Assign(values.data(), kDim);
    ExpectRefused(*shard, assigned, *plan, "Assign");
    InsertedBatch grouped = prepare();
    GroupedBatch rows = std::move(grouped).GroupRows();
    ExpectRefused(*shard, grouped, *plan, "GroupRows");
    std::move(rows).Update(values.data(), kStep);
    EXPECT_THROW(std::move(rows).Update(values.data(), kStep), std::logic_error);
    auto erasable = shard->PrepareErase(on_device.View());
    ASSERT_TRUE(erasable.ok());
    EXPECT_GT(std::move(*erasable).Erase(), 0U);
    EXPECT_THROW(std::move(*erasable).Erase(), std::logic_error) << "they are erased";
  }
}

// A batch of which this rank has no keys is spent like any other.
TEST_P(OrderOfCalls, SpendsAnEmptyBatchToo) {
  const auto shard = MakeShard(1);
  DeviceBatch nothing(device(), Batch());
  InsertedBatch batch = std::move(*shard->PrepareInsert(nothing.View()).Insert());
  std::move(batch).Update(nullptr, kStep);
  EXPECT_THROW(std::move(batch).Update(nullptr, kStep), std::logic_error);
}

TEST_P(OrderOfCalls, EndsABatchWithTheNextOne) {
  for (const int ranks : {1, 2}) {
    const auto shard = MakeShard(ranks);
    const auto plan = device().MakeAllToAllPlan();
    DeviceBatch on_device(device(), batch_);
    Preparing begun = shard->PrepareInsert(on_device.View());
    auto prepared = shard->PreparePush(on_device.View()).Finish();
    EXPECT_THROW(std::move(begun).Finish().ok(), std::logic_error);
    InsertedBatch inserted = std::move(*shard->PrepareInsert(on_device.View()).Insert());
    EXPECT_THROW(prepared->ExactNewRows(), std::logic_error);
    EXPECT_THROW(std::move(*prepared).Insert(), std::logic_error);
    auto found = shard->PrepareFind(on_device.View());
    ExpectRefused(*shard, inserted, *plan, "PrepareFind");
    DeviceArray<float> values = Values();
    found->Pool(values.data());
  }
}

// NOLINTEND(bugprone-use-after-move)

}  // namespace
}  // namespace slotwise::test
