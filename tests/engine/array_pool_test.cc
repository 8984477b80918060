// Arrays return to their pool.
#include "server/engine/array_pool.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace slotwise {
namespace {

// Of one array, in floats: the pool's, and no whole power of two.
constexpr std::size_t kSize = 50'000;

class ArrayPoolTest : public ::testing::Test {
 protected:
  const float* TakeAndRelease(std::size_t n) { return pool_.Take<float>(n).get(); }

  std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  ArrayPool pool_{*device_, 10 * kSize * sizeof(float)};
};

TEST_F(ArrayPoolTest, AnArrayThatWasReleasedIsTakenAgain) {
  const float* first = TakeAndRelease(kSize);
  EXPECT_EQ(TakeAndRelease(kSize), first);
  EXPECT_EQ(TakeAndRelease(kSize + 100), first) << "it was made a little larger";
  EXPECT_EQ(TakeAndRelease(kSize * 2 / 3), first) << "a larger one does as well";
}

TEST_F(ArrayPoolTest, AnArrayOfMoreThanTwiceTheSizeIsNotWasted) {
  const auto held = pool_.Take<float>(3 * kSize);  // so that no memory is given back to the system in between
  const float* first = TakeAndRelease(3 * kSize);
  EXPECT_NE(TakeAndRelease(kSize), first);
  EXPECT_EQ(TakeAndRelease(3 * kSize), first);
}

TEST_F(ArrayPoolTest, AnArrayThatIsReadIsNotTaken) {
  const auto first = pool_.Take<float>(kSize);
  const auto second = pool_.Take<float>(kSize);
  EXPECT_NE(first.get(), second.get());
}

TEST_F(ArrayPoolTest, AnArrayHoldsWhatItWasTakenFor) {
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kSize, 2 * kSize, kSize - 1}) {
    const auto array = pool_.Take<float>(n);
    std::fill_n(array.get(), n, 1.0F);  // the address sanitizer would see the end of a smaller one
    EXPECT_EQ(std::count(array.get(), array.get() + n, 1.0F), static_cast<std::ptrdiff_t>(n));
  }
}

TEST_F(ArrayPoolTest, NoMoreThanItMayIsKeptAndOfThatTheLatest) {
  std::vector<std::shared_ptr<float[]>> taken;
  for (int i = 0; i < 12; ++i) taken.push_back(pool_.Take<float>(kSize));
  std::vector<const float*> released;
  for (auto& array : taken) {
    released.push_back(array.get());
    array.reset();
  }
  // Nine of them, rounded up, are as much as it keeps; the last to come back is the first to go out.
  for (std::size_t i = 0; i < 9; ++i) {
    taken[i] = pool_.Take<float>(kSize);
    EXPECT_EQ(taken[i].get(), released[released.size() - 1 - i]) << i;
  }
}

// A round of many tables has thousands of small arrays: they drive no large one out.
TEST_F(ArrayPoolTest, KeepsAnyNumberOfArraysOfAsManyBytes) {
  ArrayPool pool(*device_, std::size_t{16} << 20);
  const float* const large = pool.Take<float>(kSize).get();
  std::vector<std::shared_ptr<std::byte[]>> small;
  for (int i = 0; i < 2000; ++i) small.push_back(pool.TakeOfDevice<std::byte>(1));
  small.clear();
  EXPECT_EQ(pool.Take<float>(kSize).get(), large);
}

TEST_F(ArrayPoolTest, ResultsAreOfTheDeviceHoweverSmall) {
  for (const std::size_t n : {0, 1, 100}) {
    const float* first = pool_.TakeOfDevice<float>(n).get();
    EXPECT_EQ(pool_.TakeOfDevice<float>(n).get(), first) << n;
  }
}

// A device that counts its memory for the host, of which it has no more than `most` bytes.
class PoorDevice final : public Device {
 public:
  explicit PoorDevice(std::size_t most) : most_(most) { in_use_ = 0; }

  std::size_t in_use() const { return in_use_; }

  std::string Name() const override { return "poor"; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions&, const ShardPlace&) override {
    return ResourceExhausted("poor");
  }
  void* Allocate(std::size_t) override { throw std::bad_alloc(); }
  void Free(void*) noexcept override {}
  HostMemory AllocateHost(std::size_t bytes) override {
    if (in_use_ + bytes > most_) throw std::bad_alloc();
    in_use_ += bytes;
    auto* const memory = static_cast<std::size_t*>(std::malloc(bytes));
    *memory = bytes;
    return {memory, {.free = [](void* array, int) noexcept {
              in_use_ -= *static_cast<std::size_t*>(array);
              std::free(array);
            }}};
  }
  std::unique_ptr<IngestCopy> MakeIngestCopy() override { return cpu_->MakeIngestCopy(); }
  std::unique_ptr<DeviceSharedBuffer> MakeSharedBuffer(std::size_t bytes) override {
    return cpu_->MakeSharedBuffer(bytes);
  }
  std::string Uuid() const override { return cpu_->Uuid(); }
  bool SharesHostMemory() const override { return false; }
  std::uint64_t MemoryBytes() const override { return cpu_->MemoryBytes(); }
  std::uint64_t FreeMemoryBytes() const override { return cpu_->FreeMemoryBytes(); }
  Stream& WorkStream() override { return cpu_->WorkStream(); }
  std::unique_ptr<Stream> MakeStream() override { return cpu_->MakeStream(); }
  std::unique_ptr<AllToAllPlan> MakeAllToAllPlan() override { return cpu_->MakeAllToAllPlan(); }
  void Wait() override {}
  void UseOnThisThread() override {}
  int Ordinal() const override { return 0; }

 private:
  inline static std::size_t in_use_ = 0;  // static, because memory may outlive its device
  const std::size_t most_;
  std::unique_ptr<Device> cpu_ = MakeCpuDevice(1);
};

TEST(AnArrayPool, OfADeviceWithoutHostMemoryTakesBatchesInOrdinaryMemory) {
  PoorDevice device(0);
  ArrayPool pool(device, 1 << 20);
  const auto array = pool.Take<float>(kSize);
  std::fill_n(array.get(), kSize, 1.0F);
  EXPECT_EQ(std::count(array.get(), array.get() + kSize, 1.0F), static_cast<std::ptrdiff_t>(kSize));
  EXPECT_THROW(pool.TakeOfDevice<float>(kSize), std::bad_alloc);
}

// Of sizes that do not serve each other's purpose.
TEST(AnArrayPool, KeepsArraysOnlyBesideThoseInUse) {
  PoorDevice device(std::size_t{1} << 30);
  ArrayPool pool(device, 1 << 20);
  auto first = pool.Take<std::byte>(128 << 10);
  auto second = pool.Take<std::byte>(512 << 10);
  first.reset();
  second.reset();
  EXPECT_EQ(device.in_use(), 640U << 10) << "both are kept";
  auto third = pool.Take<std::byte>(192 << 10);
  EXPECT_EQ(device.in_use(), 832U << 10) << "beside one in use, too";
  auto fourth = pool.Take<std::byte>(768 << 10);
  EXPECT_EQ(device.in_use(), 960U << 10)
      << "they made room: there is none for 512 KiB beside, and what came first goes first";
  auto fifth = pool.Take<std::byte>(1 << 20);
  EXPECT_EQ(device.in_use(), 1984U << 10);
  fifth.reset();
  EXPECT_EQ(device.in_use(), 960U << 10) << "it is not kept beside those in use";
  fourth.reset();
  third.reset();
  EXPECT_EQ(device.in_use(), 960U << 10) << "these are";
}

TEST(AnArrayPool, DoesNotCountArraysThatThereWasNoMemoryFor) {
  PoorDevice device(512 << 10);
  ArrayPool pool(device, 1 << 20);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(pool.TakeOfDevice<std::byte>(768 << 10), std::bad_alloc);
  }
  pool.Take<std::byte>(512 << 10).reset();
  EXPECT_EQ(device.in_use(), 512U << 10) << "it is kept";
}

TEST_F(ArrayPoolTest, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 200; ++i) {
        const auto array = pool_.Take<int>(kSize + static_cast<std::size_t>(i % 7) * 1000);
        array[0] = t;
        array[kSize - 1] = i;
        EXPECT_EQ(array[0], t);
        EXPECT_EQ(array[kSize - 1], i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ArrayPoolTest, ArraysOutliveTheirPoolAndDeviceAndAreReleasedByAnyThread) {
  std::shared_ptr<float[]> array;
  {
    const auto device = MakeCpuDevice(1);
    ArrayPool pool(*device, 0);
    array = pool.Take<float>(kSize);
  }
  std::fill_n(array.get(), kSize, 2.0F);
  std::thread([array = std::move(array)]() mutable { array.reset(); }).join();
}

}  // namespace
}  // namespace slotwise
