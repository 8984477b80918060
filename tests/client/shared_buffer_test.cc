// Allocations in a shared buffer do not overlap.
#include "client/cpp/shared_buffer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "wire/array_align.h"
#include "wire/shared_memory.h"

namespace slotwise::client {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 20;

class SharedBufferTest : public testing::Test {
 protected:
  std::shared_ptr<SharedMemory> memory_ = SharedMemory::Make(kBytes);
  SharedBuffer shared_buffer_{memory_};
};

TEST_F(SharedBufferTest, HasABodyAsOnePiece) {
  const std::vector<std::byte> first(100, std::byte{1});
  const std::vector<std::byte> second(28, std::byte{2});
  const auto places = shared_buffer_.Put(1, {first, second}, 300);
  ASSERT_TRUE(places);
  EXPECT_EQ(places->body_bytes(), 128U);
  const auto body = memory_->Place(places->body(), 128);
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)[99], std::byte{1});
  EXPECT_EQ((*body)[100], std::byte{2});
  EXPECT_GE(places->values_bytes(), 300U);
  const auto values = memory_->Place(places->values(), places->values_bytes());
  ASSERT_TRUE(values);
  std::memset(values->data(), 3, values->size());
  EXPECT_EQ((*body)[127], std::byte{2});

  std::vector<std::byte> out(300);
  ASSERT_TRUE(shared_buffer_.Get(1, {std::span(out).first(100), std::span(out).subspan(100)}));
  EXPECT_TRUE(std::ranges::all_of(out, [](std::byte byte) { return byte == std::byte{3}; }));
  shared_buffer_.Free(1);
  EXPECT_EQ(shared_buffer_.used(), 0U);
  EXPECT_FALSE(shared_buffer_.Get(1, {out})) << "a call that is answered";
  shared_buffer_.Free(1);
}

TEST_F(SharedBufferTest, ReadsNoMoreThanACallsOwnValues) {
  ASSERT_TRUE(shared_buffer_.Put(1, {}, 128));
  std::vector<std::byte> out(129);
  EXPECT_TRUE(shared_buffer_.Get(1, {std::span(out).first(128)}));
  EXPECT_FALSE(shared_buffer_.Get(1, {out}));
}

// Zeros of memory that is gone must not pass for values.
TEST_F(SharedBufferTest, ReadsNothingOfAServerThatIsGone) {
  SharedBuffer client(SharedMemory::Open(dup(memory_->descriptor()), kBytes));
  ASSERT_TRUE(client.Put(1, {}, 64));
  std::vector<std::byte> out(64);
  EXPECT_TRUE(client.Get(1, {out}));
  std::memset(memory_->bytes().data(), 0, SharedMemory::kFirstPlace);
  EXPECT_FALSE(client.Get(1, {out}));
}

TEST_F(SharedBufferTest, SaysWhenItIsFullAndIsWholeAgainOnceAllIsFree) {
  const std::uint64_t all = kBytes - SharedMemory::kFirstPlace;
  EXPECT_FALSE(shared_buffer_.Put(1, {}, all + 1));
  EXPECT_EQ(shared_buffer_.used(), 0U);
  ASSERT_TRUE(shared_buffer_.Put(2, {}, all));
  EXPECT_FALSE(shared_buffer_.Put(3, {}, 1));
  shared_buffer_.Free(2);

  // A body that fits, with values that do not, takes nothing.
  const std::vector<std::byte> half(kBytes / 2);
  EXPECT_FALSE(shared_buffer_.Put(4, {half}, kBytes / 2));
  EXPECT_EQ(shared_buffer_.used(), 0U);
  EXPECT_TRUE(shared_buffer_.Put(5, {}, all));
}

TEST_F(SharedBufferTest, GivesNoTwoCallsTheSameBytes) {
  constexpr std::uint64_t kSeed = 20261123;
  RecordProperty("seed", static_cast<int>(kSeed));
  std::mt19937_64 random(kSeed);
  std::map<std::uint64_t, v1::Allocations> calls;
  std::vector<std::byte> bytes(kBytes);
  std::uint64_t refused = 0;
  for (std::uint64_t id = 1; id <= 20'000; ++id) {
    if (!calls.empty() && random() % 100 < 48) {
      auto gone = calls.begin();
      std::advance(gone, static_cast<std::ptrdiff_t>(random() % calls.size()));
      shared_buffer_.Free(gone->first);
      calls.erase(gone);
    }
    const std::uint64_t body = random() % 30'000;
    const std::uint64_t values = random() % 3 == 0 ? 0 : random() % 60'000;
    const auto places = shared_buffer_.Put(id, {std::span(bytes).first(body)}, values);
    if (!places) {
      ++refused;
      continue;
    }
    calls.emplace(id, *places);
    std::map<std::uint64_t, std::uint64_t> taken;
    std::uint64_t sum = 0;
    for (const auto& [its, place] : calls) {
      for (const auto& [at, size] : {std::pair{place.body(), PaddedBytes(place.body_bytes())},
                                     std::pair{place.values(), PaddedBytes(place.values_bytes())}}) {
        if (size == 0) continue;
        ASSERT_TRUE(memory_->Place(at, size)) << "seed " << kSeed << ", call " << its;
        ASSERT_TRUE(taken.emplace(at, size).second);
        sum += size;
      }
    }
    std::uint64_t end = 0;
    for (const auto& [at, size] : taken) {
      ASSERT_GE(at, end) << "seed " << kSeed << ", after call " << id;
      end = at + size;
    }
    ASSERT_EQ(shared_buffer_.used(), sum);
  }
  EXPECT_GT(refused, 0U);
  for (const auto& call : calls) shared_buffer_.Free(call.first);
  EXPECT_EQ(shared_buffer_.used(), 0U);
  EXPECT_TRUE(shared_buffer_.Put(0, {}, kBytes - SharedMemory::kFirstPlace)) << "what is free is one piece";
}

}  // namespace
}  // namespace slotwise::client
