// Allocations in a device's memory do not overlap, and are free from the right point of a stream on.
#include "client/cpp/gpu_shared_buffer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "wire/array_align.h"
#include "wire/busy_polling.h"
#include "wire/spare_processors.h"

namespace slotwise::client {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMost = 600U << 10;  // twice that is more than all

// A point that passes when the test says so.
class ToldPoint final : public StreamPoint {
 public:
  bool Passed() override {
    ++asked;
    return passed;
  }
  Status Wait() override {
    waiting.set_value();
    passed.wait(false);
    return outcome;
  }
  void Pass() {
    passed = true;
    passed.notify_all();
  }

  // Passes once somebody waits for it; returns whether somebody does.
  bool PassWhenAwaited() {
    const bool awaited = waiting.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    Pass();
    return awaited;
  }

  std::atomic<bool> passed = false;
  std::atomic<int> asked = 0;
  std::promise<void> waiting;
  Status outcome;
};

// Copies at once, and says so when the test does.
class ToldDevice final : public DeviceAccess {
 public:
  Result<std::shared_ptr<std::byte[]>> Map(int /*descriptor*/, std::uint64_t bytes) override {
    return std::make_shared<std::byte[]>(bytes);
  }
  Result<std::shared_ptr<StreamPoint>> Mark(void* stream) override {
    if (broken) return Status(StatusCode::kInternal, "broken");
    streams.push_back(stream);
    points.push_back(std::make_shared<ToldPoint>());
    return std::shared_ptr<StreamPoint>(points.back());
  }
  Result<std::shared_ptr<StreamPoint>> CopyIn(void* stream, std::byte* to, const Pieces& pieces) override {
    for (const auto& piece : pieces) {
      std::memcpy(to, piece.data(), piece.size());
      to += PaddedBytes(piece.size());
    }
    return Mark(stream);
  }

  bool broken = false;
  std::vector<std::shared_ptr<ToldPoint>> points;
  std::vector<void*> streams;
};

class GpuSharedBufferTest : public ::testing::Test {
 protected:
  std::span<const std::byte> At(std::uint64_t at, std::size_t bytes) const {
    return {memory_.get() + at, bytes};
  }

  const std::shared_ptr<ToldDevice> device_ = std::make_shared<ToldDevice>();
  const std::shared_ptr<std::byte[]> memory_ = std::make_shared<std::byte[]>(kBytes);
  const std::shared_ptr<GpuSharedBuffer> shared_buffer_ =
      std::make_shared<GpuSharedBuffer>(device_, memory_, kBytes);
  int stream_ = 0;
};

TEST_F(GpuSharedBufferTest, CopiesArraysInTheCallersStreamAndKeepsThemUntilTheCallIsOver) {
  const std::vector<std::byte> first(100, std::byte{1});
  const std::vector<std::byte> second(28, std::byte{2});
  OnDevice call{.access = device_, .stream = &stream_, .turn = std::make_shared<Turn>()};
  const auto places = shared_buffer_->Put(1, {first, second}, 300, call);
  ASSERT_TRUE(places.ok());
  EXPECT_TRUE(call.turn->has_arrays());
  EXPECT_EQ(device_->streams, std::vector<void*>{&stream_});
  EXPECT_EQ(places->body_bytes(), 128U + 64U);
  EXPECT_EQ(At(places->body(), 100)[99], std::byte{1});
  EXPECT_EQ(At(places->body() + 128, 28)[27], std::byte{2});
  shared_buffer_->Free(1);
  EXPECT_EQ(shared_buffer_->used(), places->body_bytes()) << "the call may be sent again";

  const std::vector<std::byte> others(28, std::byte{9});
  const auto again = shared_buffer_->Put(2, {others}, 300, call);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->body(), places->body());
  EXPECT_EQ(At(again->body(), 1)[0], std::byte{1}) << "it has its arrays";
  shared_buffer_->Free(2);
  // A copy that is under way writes there, though the caller has given the call up.
  call.carried.reset();
  const std::vector<std::byte> most(kMost);
  OnDevice next{.access = device_, .stream = &stream_};
  device_->points.front()->Pass();
  ASSERT_TRUE(shared_buffer_->Put(3, {most}, 0, next).ok());
  shared_buffer_->Free(3);
  next.carried.reset();
  OnDevice last{.access = device_, .stream = &stream_};
  const auto let_go = device_->points[1];
  auto waits = std::async(std::launch::async, [&] { return shared_buffer_->Put(4, {most}, 0, last); });
  EXPECT_TRUE(let_go->PassWhenAwaited());
  EXPECT_TRUE(waits.get().ok());
}

TEST_F(GpuSharedBufferTest, ValuesAreTheCallersUntilItsStreamHasReadThem) {
  OnDevice call{.access = device_, .stream = &stream_};
  const auto places = shared_buffer_->Put(1, {}, kMost, call);
  ASSERT_TRUE(places.ok());
  auto values = shared_buffer_->TakeValues(1);
  EXPECT_EQ(values.get(), memory_.get() + places->values());
  EXPECT_EQ(shared_buffer_->TakeValues(1), nullptr) << "they are taken";
  shared_buffer_->Free(1);
  OnDevice other{.access = device_, .stream = &stream_};
  auto refused = shared_buffer_->Put(2, {}, kMost, other);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("let go of earlier results"), std::string::npos);
  values.reset();
  ASSERT_EQ(device_->points.size(), 2U) << "of the arrays, of which there are none, and of the values";
  const auto let_go = device_->points[1];
  auto waits = std::async(std::launch::async, [&] { return shared_buffer_->Put(3, {}, kMost, other); });
  EXPECT_TRUE(let_go->PassWhenAwaited());
  EXPECT_TRUE(waits.get().ok());
  auto larger = shared_buffer_->Put(4, {}, kBytes + 1, other);
  ASSERT_FALSE(larger.ok());
  EXPECT_NE(larger.status().message().find("look up or push less at once"), std::string::npos);
}

TEST_F(GpuSharedBufferTest, WhatCannotBeCopiedTakesNoRoom) {
  device_->broken = true;
  const std::vector<std::byte> array(100);
  OnDevice call{.access = device_, .stream = &stream_, .turn = std::make_shared<Turn>()};
  const auto refused = shared_buffer_->Put(1, {array}, 300, call);
  EXPECT_EQ(refused.status().code(), StatusCode::kInternal);
  EXPECT_FALSE(call.turn->has_arrays());
  EXPECT_EQ(shared_buffer_->used(), 0U);
}

TEST_F(GpuSharedBufferTest, AnSharedBufferThatHasEndedBelongsToWhoHasArraysOrValuesThere) {
  const std::vector<std::byte> array(100);
  OnDevice call{.access = device_, .stream = &stream_};
  ASSERT_TRUE(shared_buffer_->Put(1, {array}, 300, call).ok());
  shared_buffer_->End();
  EXPECT_EQ(shared_buffer_->used(), 128U) << "of the call's arrays";
  EXPECT_EQ(shared_buffer_->TakeValues(1), nullptr);
  call.carried.reset();
  EXPECT_EQ(shared_buffer_.use_count(), 1) << "no call keeps it";
}

// What is done when a point of a stream has passed is done on the loop's thread, once, and not before.
TEST(WhenPassedTest, CallsOnceThePointHasPassed) {
  BusyPolling loop;
  for (const bool well : {true, false}) {
    const auto point = std::make_shared<ToldPoint>();
    if (!well) point->outcome = Status(StatusCode::kInternal, "broken");
    std::vector<Status> heard;
    std::thread device([&] { EXPECT_TRUE(point->PassWhenAwaited()); });
    if (HasSpareProcessors()) {
      WhenPassed(loop, point, [&](const Status& there) { heard.push_back(there); });
      for (int i = 0; i < 1000; ++i) loop.context().poll();
      EXPECT_GE(point->asked, 2);
      EXPECT_TRUE(heard.empty());
      point->Pass();
      while (heard.empty()) loop.context().run_one();
    } else {
      WhenPassed(loop, point, [&](const Status& there) { heard.push_back(there); });
    }
    device.join();
    ASSERT_EQ(heard.size(), 1U);
    EXPECT_EQ(heard[0].ok(), well);
  }
}

}  // namespace
}  // namespace slotwise::client
