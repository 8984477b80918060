// Tests how many rounds a small request waits for the large ones of many callers, and how requests of callers
// who are gone are treated.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/observer.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/describe_session.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/schedule/round_scheduler.h"
#include "tests/engine/running_engine.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

// Holds the engine at a decision on a round while it is told to, and notes the rounds' samples, by part.
class HoldRounds final : public EngineObserver {
 public:
  void OnTaken(const Request& /*request*/, TicketNumber /*ticket*/) override { ++taken; }
  void OnDecision(const EngineState& /*state*/, const Decision& decision) override {
    if (!decision.round) return;
    std::unique_lock lock(mutex_);
    auto& samples = rounds_.emplace_back();
    for (const RoundPart& part : decision.round->parts) samples.push_back(part.samples);
    held_ = held_ || rounds_.size() == hold_at_;
    is_held_ = held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
  }

  // From now on every round waits until Release; returns once one does, which is not noted.
  void Hold(Engine& engine) {
    std::unique_lock lock(mutex_);
    held_ = true;
    lock.unlock();
    engine.Submit(DescribeSessionRequest{.session = 1, .done = [](const auto&) {}});
    lock.lock();
    changed_.wait(lock, [this] { return is_held_; });
    rounds_.clear();
    taken = 0;
  }
  // Goes on, until so many rounds were decided since Hold, and returns then.
  void HoldAgainAt(std::size_t rounds) {
    std::unique_lock lock(mutex_);
    hold_at_ = rounds;
    held_ = is_held_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_held_; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    held_ = is_held_ = false;
    changed_.notify_all();
  }
  std::vector<std::vector<std::uint32_t>> rounds() {
    const std::lock_guard lock(mutex_);
    return rounds_;
  }

  std::atomic<int> taken = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool is_held_ = false;
  std::size_t hold_at_ = 0;
  std::vector<std::vector<std::uint32_t>> rounds_;
};

class FairRounds : public testing::Test {
 protected:
  FairRounds() {
    TableOptions options;
    options.name = TableName("ads");
    options.dim = 16;
    CreateTableRequest create;
    create.options = options;
    std::atomic<bool> made = false;
    create.done = [&](const Result<CreatedTable>& created) {
      table_ = created->id;
      made = true;
    };
    engine_.Submit(std::move(create));
    while (!made) std::this_thread::yield();
    observer_.Hold(engine_);
  }
  ~FairRounds() override {
    engine_.RequestStop();
    thread_.join();
  }

  // Lookups of so many samples, one key each.
  void LookUp(const Caller& caller, std::uint32_t samples) {
    ++sent_;
    Bags bags{samples, std::vector<std::uint64_t>(samples, 5), {}};
    for (std::uint32_t i = 0; i <= samples; ++i) bags.offsets.push_back(i);
    LookupRequest lookup{table_, LookupMode::kEval, PartOf(bags), [this](const Result<PooledValues>& pooled) {
                           if (!pooled.ok()) codes_.push_back(pooled.status().code());
                           ++ended_;
                         }};
    lookup.caller = caller;
    engine_.Submit(std::move(lookup));
  }
  void Push(const Caller& caller, std::uint64_t number, std::uint32_t parts) {
    ++sent_;
    PushRequest push{table_,
                     {.session = 1, .number = number, .part = 0, .parts = parts},
                     PartOf(UnitBags({5}), std::vector<float>(16, 1.0F)),
                     [this](const Result<AppliedStep>& applied) {
                       if (!applied.ok()) codes_.push_back(applied.status().code());
                       ++ended_;
                     }};
    push.caller = caller;
    engine_.Submit(std::move(push));
  }
  void ServeAll() {
    observer_.Release();
    while (ended_ < sent_) std::this_thread::yield();
  }

  const EnginePlace place_{MakeSoloCollective(), MakeCpuDevice(1)};
  const std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  HoldRounds observer_;
  // A quantum is one request here, whatever time that takes.
  Engine engine_{*place_.device,
                 *collective_,
                 place_.exchanges,
                 kTestSecret,
                 {.max_round_bytes = 1 << 20, .least_quantum_bytes = 1},
                 SystemClock(),
                 &observer_};
  std::thread thread_{[this] { engine_.Run(); }};
  TableId table_{0};
  int sent_ = 0;
  std::atomic<int> ended_ = 0;
  std::vector<StatusCode> codes_;  // of the engine's thread until all has ended
};

constexpr std::uint32_t kLarge = 8000;  // samples: 0.6 MiB of a round's MiB

TEST_F(FairRounds, ASmallLookupIsServedNextHoweverManyLargeOnesWait) {
  for (int i = 0; i < 10; ++i) {
    for (const std::string name : {"a", "b", "c", "d"}) LookUp(Caller(name), kLarge);
  }
  LookUp(Caller("small"), 1);
  observer_.HoldAgainAt(10);
  LookUp(Caller("another"), 2);
  ServeAll();
  const auto rounds = observer_.rounds();
  ASSERT_EQ(rounds.size(), 42U);
  const auto place = [&](std::uint32_t samples) {
    const auto alone = std::ranges::find(rounds, std::vector<std::uint32_t>{samples});
    return alone - rounds.begin();
  };
  EXPECT_EQ(place(1), 0) << "it shares its round with no large lookup";
  EXPECT_EQ(place(2), 10) << "behind the round that was decided as it came";
}

TEST_F(FairRounds, WhatNoCallerWaitsForIsNotWorkedOn) {
  const Caller late("late", Caller::Clock::now() - std::chrono::seconds(1));
  LookUp(late, kLarge);
  Push(late, 1, 1);
  EXPECT_EQ(ended_, 2) << "they are not even queued";
  const Caller soon("soon", Caller::Clock::now() + std::chrono::milliseconds(200));
  LookUp(soon, kLarge);
  Push(soon, 2, 1);
  const Caller leaves("leaves");
  LookUp(leaves, kLarge);
  leaves.Leave();
  LookUp(Caller("there"), 3);
  while (!soon.gone()) std::this_thread::yield();
  ServeAll();
  EXPECT_EQ(observer_.taken, 1);
  EXPECT_EQ(observer_.rounds(), (std::vector<std::vector<std::uint32_t>>{{3}}));
  std::ranges::sort(codes_);
  EXPECT_EQ(codes_, (std::vector<StatusCode>{StatusCode::kDeadlineExceeded, StatusCode::kDeadlineExceeded,
                                             StatusCode::kDeadlineExceeded, StatusCode::kDeadlineExceeded,
                                             StatusCode::kCancelled}));
}

}  // namespace
}  // namespace slotwise::test
