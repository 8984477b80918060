// A device's memory is aligned and holds what was uploaded, and its shards have legal options only.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"

namespace slotwise::test {
namespace {

class ADevice : public ContractTest {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }
};
SLOTWISE_ON_EVERY_BACKEND(ADevice);

TEST_P(ADevice, SaysItsName) {
  if (GetParam().name.starts_with("Cpu")) {
    EXPECT_EQ(device().Name(), "cpu");
    EXPECT_TRUE(device().SharesHostMemory());
  } else {
    EXPECT_TRUE(device().Name().starts_with("cuda")) << device().Name();
  }
}

TEST_P(ADevice, GivesMemoryAlignedTo64Bytes) {
  for (const std::size_t bytes : {1, 3, 64, 65, 1000, 1 << 20}) {
    void* memory = device().Allocate(bytes);
    EXPECT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u) << bytes << " bytes";
    device().Free(memory);
  }
}

TEST_P(ADevice, BringsBackWhatWasUploaded) {
  Random random(3);
  std::vector<std::uint64_t> sent(100'003);
  for (auto& word : sent) {
    word = random.Bits();
  }
  DeviceArray<std::uint64_t> array(device(), std::span<const std::uint64_t>(sent));
  EXPECT_EQ(array.Download(), sent);
}

// Bytes go up by one stream, across by the device's own, and down by another.
TEST_P(ADevice, HasStreamsThatAreOrderedAfterEachOther) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  void* const first = device().Allocate(kBytes);
  void* const second = device().Allocate(kBytes);
  const HostMemory sent = device().AllocateHost(kBytes);
  const HostMemory received = device().AllocateHost(kBytes);
  const auto up = device().MakeStream();
  const auto down = device().MakeStream();
  for (int turn = 1; turn <= 5; ++turn) {
    std::memset(sent.get(), turn, kBytes);
    std::memset(received.get(), 0, kBytes);
    up->Copy(first, sent.get(), kBytes);
    device().WorkStream().OrderAfter(*up);
    device().WorkStream().Copy(second, first, kBytes);
    down->OrderAfter(device().WorkStream());
    down->Copy(received.get(), second, kBytes);
    down->Wait();
    EXPECT_TRUE(down->IsDone());
    EXPECT_EQ(std::memcmp(received.get(), sent.get(), kBytes), 0) << "turn " << turn;
  }
  device().Wait();
  EXPECT_TRUE(up->IsDone());
  device().Free(first);
  device().Free(second);
}

TEST_P(ADevice, RefusesOptionsThatMakeNoTable) {
  TableOptions options = MakeOptions(8);
  options.dim = 0;
  const auto shard = device().MakeShard(options, ShardPlace{.secret = kTestSecret});
  ASSERT_FALSE(shard.ok());
  EXPECT_EQ(shard.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(shard.status().message().find("dim"), std::string::npos) << shard.status().message();
}

TEST_P(ADevice, MakesShardsThatBeginEmpty) {
  auto made = device().MakeShard(MakeOptions(8), ShardPlace{.secret = kTestSecret});
  ASSERT_TRUE(made.ok()) << made.status().message();
  Shard& shard = **made;
  EXPECT_EQ(shard.Usage().rows, 0u);
  EXPECT_TRUE(shard.Keys().empty());
  EXPECT_EQ(shard.Digest(), (DigestSums{0, 0})) << "a sum over no rows";
}

TEST_P(ADevice, TakesTheOptionsThatATableHasUnlessToldOtherwise) {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = 16;
  CheckedTable table(device(), options);
  Random random(5);
  table.PushRandom(RandomBatch(random, {}), random);
  table.ExpectRowsMatch();
}

TEST_P(ADevice, MakesRoomForInitialRowsAtOnce) {
  TableOptions options = MakeOptions(8);
  options.initial_rows = 50'000;
  auto made = device().MakeShard(options, ShardPlace{.secret = kTestSecret});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->Usage().rows, 0u);
  EXPECT_GE((*made)->Usage().cells, 50'000u);
  EXPECT_GE((*made)->Usage().bytes, 50'000u * 8 * sizeof(float));
}

// All the memory of a device but for what is given back.
class Ballast {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 30;

  explicit Ballast(Device& device) : device_(device) { Fill(); }
  ~Ballast() { GiveBack(blocks_.size()); }

  std::size_t blocks() const { return blocks_.size(); }
  void GiveBack(std::size_t count) {
    for (; count > 0; --count, blocks_.pop_back()) device_.Free(blocks_.back());
  }
  // Takes all that is free. Returns how many blocks that was.
  std::size_t Fill() {
    const std::size_t before = blocks();
    try {
      for (;;) blocks_.push_back(device_.Allocate(kBlockBytes));
    } catch (const std::bad_alloc&) {
      return blocks() - before;
    }
  }

 private:
  Device& device_;
  std::vector<void*> blocks_;
};

// A batch that ended midway for want of memory would end its server, and with that all tables.
TEST_P(ADevice, KeepsMemoryForBatchesWhenRowsHaveTakenTheRest) {
  if (device().SharesHostMemory()) GTEST_SKIP() << "kernels_test looks at the host's memory";
  constexpr std::uint32_t kDim = 1024;
  constexpr std::uint64_t kKeys = 1 << 16;  // whose rows are 256 MiB
  TableOptions options = MakeOptions(kDim);
  options.max_rows = 1 << 24;
  auto made = device().MakeShard(options, ShardPlace{.secret = kTestSecret});
  ASSERT_TRUE(made.ok()) << made.status().message();
  Shard& shard = **made;

  Ballast ballast(device());
  const std::size_t all = ballast.blocks();
  ballast.GiveBack(all / 16 + 4);
  // A key a bag; or `bags` of them, of the keys from 0.
  const auto batch_of = [](std::uint64_t first, std::uint64_t count, std::uint32_t bags) {
    Batch batch;
    for (std::uint64_t i = 0; i < count; ++i) batch.keys.push_back(Key{first + i});
    for (std::uint64_t bag = 1; bag <= bags; ++bag)
      batch.offsets.push_back(static_cast<std::uint32_t>(bag * count / bags));
    return batch;
  };
  std::uint64_t added = 0;
  for (;; added += kKeys) {
    const Batch batch = batch_of(added, kKeys, kKeys);
    DeviceBatch on_device(device(), batch);
    const auto inserted = shard.PrepareInsert(on_device.View()).Insert();
    if (!inserted.ok()) {
      EXPECT_EQ(inserted.status().code(), StatusCode::kResourceExhausted) << inserted.status().message();
      break;
    }
    ASSERT_LT(added, options.max_rows - kKeys) << "there is no end to the memory";
  }
  EXPECT_EQ(shard.Usage().rows, added);
  EXPECT_GT(added, kKeys) << "some memory was for rows";

  // Larger than any before.
  constexpr std::uint32_t kBags = 4096;
  const Batch batch = batch_of(0, 32 * kKeys, kBags);
  DeviceBatch on_device(device(), batch);
  const std::vector<float> ones(std::size_t{kBags} * kDim, 1.0F);
  DeviceArray<float> values(device(), std::span<const float>(ones));
  auto found = shard.PrepareFind(on_device.View());
  ASSERT_TRUE(found.ok());
  found->Pool(values.data());
  std::vector<Key> present(batch.keys.begin(), batch.keys.begin() + static_cast<std::ptrdiff_t>(added));
  DeviceArray<Key> present_keys(device(), std::span<const Key>(present));
  const Batch all_present = batch_of(0, added, kBags);
  DeviceArray<std::uint32_t> present_offsets(device(), std::span<const std::uint32_t>(all_present.offsets));
  auto inserted = shard.PrepareInsert({present_keys.span(), present_offsets.span()}).Insert();
  ASSERT_TRUE(inserted.ok());
  std::move(*inserted).Update(values.data(), ScalarsOfStep(options.optimizer, 1));
  device().Wait();
  EXPECT_EQ(shard.Usage().rows, added);
  EXPECT_GE(ballast.Fill() + 1, all / 16) << "of " << all << " GiB";
}

// Tables share a device, and a round on one may fall between the stops of another's.
TEST_P(ADevice, KeepsTheBatchesOfItsShardsApart) {
  CheckedTable ads(device(), MakeOptions(4));
  CheckedTable users(device(), MakeOptions(9, Combiner::kMean, OptimizerKind::kAdam));
  Random random(4);
  const Batch ads_batch = RandomBatch(random, {});
  const Batch users_batch = RandomBatch(random, {.bags = 30, .max_bag = 20});
  ads.PushRandom(ads_batch, random);
  users.PushRandom(users_batch, random);

  Shard& shard = ads.shards().shard(0);
  DeviceBatch on_device(device(), ads_batch);
  auto found = shard.PrepareFind(on_device.View());
  ASSERT_TRUE(found.ok());
  users.Lookup(users_batch, LookupMode::kTrain);
  users.PushRandom(users_batch, random);
  DeviceArray<float> out(device(),
                         std::span<const float>(std::vector<float>(std::size_t{ads_batch.bags()} * 4)));
  found->Pool(out.data());

  Oracle expected = ads.oracle();
  EXPECT_TRUE(SameBytes(out.Download(), *expected.Lookup(ads_batch, LookupMode::kEval), 4));
  users.ExpectRowsMatch();
}

TEST(CudaDevices, AreRefusedWhereThereAreNone) {
  for (const int ordinal : {-1, CudaDeviceCount(), CudaDeviceCount() + 7}) {
    const auto device = MakeCudaDevice(ordinal);
    ASSERT_FALSE(device.ok()) << "CUDA device " << ordinal;
    EXPECT_EQ(device.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_FALSE(device.status().message().empty());
  }
}

TEST(EvenBuckets, GiveBucketBToRankBTimesRanksOverBuckets) {
  for (const int ranks : {1, 2, 3, 4, 7, 8, 100, 4096}) {
    const BucketMap map = EvenBucketMap(ranks);
    for (std::uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      ASSERT_EQ(map[bucket], bucket * ranks / 4096) << "bucket " << bucket << " of " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace slotwise::test
