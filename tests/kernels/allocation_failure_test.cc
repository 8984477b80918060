// A shard that gets no memory reports this and stays unchanged. A prepared batch is inserted without new
// memory.
//
// This program's aligned operator new, from which the CPU backend takes its arrays, fails when told to.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "kernels/shard.h"
#include "tests/support/batches.h"
#include "tests/support/test_secret.h"

namespace {
std::atomic<bool> failing = false;
std::atomic<int> allocations_left = 0;
}  // namespace

void* operator new(std::size_t bytes, std::align_val_t align) {
  if (failing && allocations_left.fetch_sub(1) <= 0) throw std::bad_alloc();
  const auto alignment = static_cast<std::size_t>(align);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace slotwise::test {
namespace {

// While it lives, all aligned allocations but the first `allowed` fail.
class NoMemoryAfter {
 public:
  explicit NoMemoryAfter(int allowed) {
    allocations_left = allowed;
    failing = true;
  }
  ~NoMemoryAfter() { failing = false; }
};

TableOptions Options() {
  TableOptions options;
  options.name = TableName("table");
  options.dim = 4;
  return options;
}

// Returns whether Prepare succeeded.
bool InsertWith(int allocations, int ranks) {
  const auto device = MakeCpuDevice(1);
  auto shard = device->MakeShard(Options(), {Rank{0}, ranks, EvenBucketMap(ranks), test::kTestSecret});
  const Batch few = OneKeyABag(KeyRange(1, 100));
  EXPECT_TRUE((*shard)->PrepareInsert(few.View()).Insert().ok());
  const DigestSums before = (*shard)->Digest();

  const Batch many = OneKeyABag(KeyRange(1, 5000));  // more than there is room for
  auto prepared = [&] {
    const NoMemoryAfter none(allocations);
    return (*shard)->PrepareInsert(many.View()).Finish();
  }();
  EXPECT_EQ((*shard)->Digest(), before);
  if (prepared.ok()) {
    const NoMemoryAfter none(0);
    std::move(*prepared).Insert();
  } else {
    EXPECT_EQ(prepared.status().code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE((*shard)->PrepareInsert(many.View()).Insert().ok()) << "with memory it must go on";
  }
  EXPECT_GT((*shard)->Usage().rows, 1000U);
  return prepared.ok();
}

TEST(AShardWithoutMemory, RefusesTheBatchAtWhicheverAllocationFails) {
  for (const int ranks : {1, 2}) {
    int allocations = 0;
    while (!InsertWith(allocations, ranks)) ASSERT_LT(++allocations, 100);
    EXPECT_GT(allocations, 3) << "the allocations of Prepare were not made to fail";
  }
}

// A key of thousands of occurrences beside keys of one: its sum takes memory of its own.
TEST(AShardWithoutMemory, UpdatesAllRowsOrNone) {
  std::vector<std::uint64_t> keys(5000, 7);
  for (std::uint64_t key = 100; key < 200; ++key) keys.push_back(key);
  const Batch batch = OneKeyABag(keys);
  const std::vector<float> gradients(std::size_t{4} * batch.bags(), 1.0F);

  int allocations = 0;
  for (bool updated = false; !updated; ++allocations) {
    ASSERT_LT(allocations, 100);
    const auto device = MakeCpuDevice(1);
    auto shard = device->MakeShard(Options(), {.secret = test::kTestSecret});
    auto inserted = (*shard)->PrepareInsert(batch.View()).Insert();
    ASSERT_TRUE(inserted.ok());
    const DigestSums before = (*shard)->Digest();
    try {
      const NoMemoryAfter none(allocations);
      std::move(*inserted).Update(gradients.data(), {.learning_rate = 0.5F});
      updated = true;
    } catch (const std::bad_alloc&) {
      EXPECT_EQ((*shard)->Digest(), before) << "after " << allocations << " allocations";
    }
  }
  EXPECT_GT(allocations, 6) << "the allocations of Update were not made to fail";
}

// A shard of 5000 rows, of which the last 1000 have changed since they are tracked.
std::unique_ptr<Shard> TrackedShard(Device& device) {
  auto shard = std::move(*device.MakeShard(Options(), {.secret = test::kTestSecret}));
  const auto train = [&](std::uint64_t first, std::uint64_t count) {
    const Batch batch = OneKeyABag(KeyRange(first, count));
    EXPECT_TRUE(shard->PrepareInsert(batch.View()).Insert().ok());
  };
  train(0, 4000);
  EXPECT_TRUE(shard->TrackChanges(10).ok());
  train(4000, 1000);
  return shard;
}

TEST(AShardWithoutMemory, BeginsASnapshotOrNot) {
  for (const bool changed_only : {false, true}) {
    const SnapshotOptions options{
        .changed_only = changed_only, .remember = true, .max_copy_on_write_bytes = 1 << 20};
    int allocations = 0;
    for (bool begun = false; !begun; ++allocations) {
      ASSERT_LT(allocations, 100);
      const auto device = MakeCpuDevice(1);
      const auto shard = TrackedShard(*device);
      const auto snapshot = [&] {
        const NoMemoryAfter none(allocations);
        return shard->BeginSnapshot(options);
      }();
      begun = snapshot.ok();
      if (!begun) {
        EXPECT_EQ(snapshot.status().code(), StatusCode::kResourceExhausted);
        const auto again = shard->BeginSnapshot(options);
        ASSERT_TRUE(again.ok()) << "none is open";
        EXPECT_EQ(again->info.keys.size(), changed_only ? 1000U : 5000U) << "nothing was taken";
      }
    }
    EXPECT_GT(allocations, 4) << "the allocations of BeginSnapshot were not made to fail";
  }
}

TEST(AShardWithoutMemory, SavesRowsBeforeItChangesThem) {
  const Batch batch = OneKeyABag(KeyRange(100, 2000));
  const std::vector<float> gradients(std::size_t{4} * batch.bags(), 1.0F);
  int allocations = 0;
  for (bool updated = false; !updated; ++allocations) {
    ASSERT_LT(allocations, 100);
    const auto device = MakeCpuDevice(1);
    const auto shard = TrackedShard(*device);
    const RowRecords before = shard->Read(batch.keys);
    auto snapshot = shard->BeginSnapshot({.max_copy_on_write_bytes = 1 << 20});
    ASSERT_TRUE(snapshot.ok());
    auto inserted = shard->PreparePush(batch.View()).Insert();
    ASSERT_TRUE(inserted.ok());
    try {
      const NoMemoryAfter none(allocations);
      std::move(*inserted).Update(gradients.data(), {.learning_rate = 0.5F});
      updated = true;
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(shard->Read(batch.keys).records, before.records);
    }
    const SnapshotInfo& info = snapshot->info;
    std::vector<float> read(info.rows.size() * 4);
    snapshot->snapshot->Read(device->WorkStream(), info.rows, read.data());
    for (std::size_t i = 0; i < info.keys.size(); ++i) {
      const std::uint64_t key = Value(info.keys[i]);
      if (key < 100 || key >= 2100) continue;
      ASSERT_EQ(read[4 * i], before.records[4 * (key - 100)]) << key;
    }
  }
  EXPECT_GT(allocations, 4) << "the allocations of Update were not made to fail";
}

TEST(AShardWithoutMemory, LoadsAllRowsOrNone) {
  std::vector<Key> keys;
  for (const std::uint64_t key : KeyRange(4500, 5000)) keys.push_back(Key{key});
  const std::vector<float> records(4 * keys.size(), 3.0F);
  int allocations = 0;
  for (bool loaded = false; !loaded; ++allocations) {
    ASSERT_LT(allocations, 100);
    const auto device = MakeCpuDevice(1);
    const auto shard = TrackedShard(*device);
    const DigestSums before = shard->Digest();
    const Status status = [&] {
      const NoMemoryAfter none(allocations);
      return shard->Load(keys, records.data());
    }();
    loaded = status.ok();
    if (!loaded) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      EXPECT_EQ(shard->Digest(), before);
      EXPECT_EQ(shard->Usage().rows, 5000U);
      EXPECT_TRUE(shard->Load(keys, records.data()).ok()) << "with memory it must go on";
    }
    EXPECT_EQ(shard->Usage().rows, 9500U);
    EXPECT_EQ(shard->Read(keys).records, records);
  }
  EXPECT_GT(allocations, 4) << "the allocations of Load were not made to fail";
}

TEST(AShardWithoutMemory, IsNotMade) {
  const auto device = MakeCpuDevice(1);
  const NoMemoryAfter none(0);
  EXPECT_EQ(device->MakeShard(Options(), {.secret = test::kTestSecret}).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace slotwise::test
