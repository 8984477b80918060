// A plan of a rank's memory promises no byte twice, on any machine and with any limits.
#include "slotwise/memory_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace slotwise::sizing {
namespace {

constexpr std::uint64_t kGiB = 1024;  // in MiB

MemoryAsked OnCpu(std::uint64_t mib, const MemoryLimits& set = {}) {
  return {.host_mib = mib, .device_mib = mib, .set = set};
}

TEST(MemoryPlan, HasTheDocumentedDefaultsWhereThereIsPlenty) {
  for (const bool several : {false, true}) {
    MemoryAsked asked = OnCpu(48 * kGiB);
    asked.several_ranks = several;
    const MemoryPlan plan = PlanMemory(asked);
    EXPECT_TRUE(plan.fits);
    EXPECT_EQ(plan.limits, (MemoryLimits{.message = 64,
                                         .round = 768,
                                         .queue = 1536,
                                         .shared = 1536,
                                         .ledger = 256,
                                         .evicted = 16,
                                         .connections = 4096,
                                         .calls = 16'384,
                                         .copy_on_write = 256}));
  }
  EXPECT_EQ(PlanMemory(OnCpu(1024 * kGiB)).limits.round, 4096U);
  EXPECT_EQ(PlanMemory(OnCpu(32 * kGiB)).limits.round, 512U);
  const MemoryAsked gpu{.host_mib = 200 * kGiB, .device_mib = 139 * kGiB, .gpu = true};
  EXPECT_EQ(PlanMemory(gpu).limits.round, 2224U);
  EXPECT_EQ(PlanMemory(gpu).tables_mib, 0U) << "they lie on the GPU";
}

TEST(MemoryPlan, LeavesTablesHalfWhereNothingIsSet) {
  for (std::uint64_t mib = 384; mib <= 2048 * kGiB; mib += 1 + mib / 7) {
    for (const bool several : {false, true}) {
      for (const bool keeps : {false, true}) {
        MemoryAsked asked = OnCpu(mib);
        asked.several_ranks = several;
        asked.keeps = asked.journals = keeps;
        const MemoryPlan plan = PlanMemory(asked);
        EXPECT_TRUE(plan.fits) << mib;
        EXPECT_GE(2 * plan.tables_mib, mib) << mib;
      }
    }
  }
}

TEST(MemoryPlan, PromisesNoMoreThanThereIs) {
  constexpr unsigned kSeed = 31;
  std::mt19937_64 random(kSeed);
  const auto up_to = [&](std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random);
  };
  const auto sometimes = [&](std::uint64_t most) {
    return up_to(2) == 0 ? 1 + (up_to(most - 1) >> up_to(20)) : 0;
  };
  int fitting = 0;
  constexpr int kTrials = 200'000;
  for (int trial = 0; trial < kTrials; ++trial) {
    MemoryAsked asked{.host_mib = up_to(4096 * kGiB) >> up_to(22),
                      .device_mib = up_to(1024 * kGiB),
                      .gpu = up_to(3) == 0,
                      .several_ranks = up_to(1) == 0,
                      .keeps = up_to(1) == 0,
                      .journals = up_to(1) == 0,
                      .least_calls = 4 * (1 + (up_to(100'000) >> up_to(16))),
                      .set = {.message = sometimes(2047),
                              .round = sometimes(4096),
                              .queue = sometimes(16'777'216),
                              .shared = sometimes(16'777'216),
                              .ledger = sometimes(1'048'576),
                              .connections = sometimes(1'000'000),
                              .calls = sometimes(4'000'000),
                              .copy_on_write = sometimes(16'777'216)}};
    const MemoryPlan plan = PlanMemory(asked);
    const auto kept = [](std::uint64_t set, std::uint64_t value) {
      return set == 0 ? value > 0 : value == set;
    };
    EXPECT_TRUE(kept(asked.set.message, plan.limits.message) && kept(asked.set.round, plan.limits.round) &&
                kept(asked.set.queue, plan.limits.queue) && kept(asked.set.shared, plan.limits.shared) &&
                kept(asked.set.ledger, plan.limits.ledger) &&
                kept(asked.set.copy_on_write, plan.limits.copy_on_write) &&
                kept(asked.set.connections, plan.limits.connections) &&
                kept(asked.set.calls, plan.limits.calls))
        << "what is set stays, and the rest is something";
    EXPECT_TRUE(plan.limits.message <= plan.limits.queue || asked.set.message > 0);
    EXPECT_TRUE(plan.limits.calls >= asked.least_calls || asked.set.calls > 0);
    EXPECT_EQ(plan.aside.all(), SetAsideFor(asked, plan.limits).all());
    if (!plan.fits) {
      EXPECT_GT(plan.aside.all(), asked.host_mib - asked.host_mib / 16) << "refused though there is room";
      continue;
    }
    ++fitting;
    EXPECT_LE(plan.aside.all() + plan.tables_mib, asked.host_mib);
    EXPECT_LE(plan.aside.all(), asked.host_mib - asked.host_mib / 16);
  }
  EXPECT_GT(fitting, kTrials / 10);
  EXPECT_LT(fitting, kTrials - kTrials / 10);
}

TEST(MemoryPlan, TakesMoreThanHalfOnlyForLimitsThatAreSet) {
  const MemoryPlan plan = PlanMemory(OnCpu(kGiB, {.round = 32, .queue = 64}));
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.limits.round, 32U);
  EXPECT_EQ(plan.limits.queue, 64U);
  EXPECT_EQ(plan.limits.message, 4U) << "as small as is useful, and no smaller";
  EXPECT_GE(plan.tables_mib, kGiB / 16);
  EXPECT_LT(plan.tables_mib, kGiB / 2);
  EXPECT_FALSE(PlanMemory(OnCpu(kGiB, {.round = 512, .queue = 1024})).fits);
  EXPECT_FALSE(PlanMemory(OnCpu(kGiB, {.shared = 1000})).fits);
  EXPECT_FALSE(PlanMemory(OnCpu(100)).fits) << "a process takes most of it";
}

// A limit that asks for no more than the default is no reason to leave tables less.
TEST(MemoryPlan, LeavesTablesHalfWhereLimitsAreSetNoHigherThanByDefault) {
  for (std::uint64_t mib = 400; mib <= 128 * kGiB; mib += mib / 7) {
    for (const bool several_ranks : {false, true}) {
      MemoryAsked asked = OnCpu(mib);
      asked.several_ranks = several_ranks;
      asked.keeps = asked.journals = true;
      const MemoryPlan by_default = PlanMemory(asked);
      ASSERT_GE(2 * by_default.tables_mib, mib) << mib;
      const MemoryLimits& limits = by_default.limits;
      for (const std::uint64_t part : {1, 2, 16}) {
        const auto lower = [&](std::uint64_t limit) { return std::max<std::uint64_t>(limit / part, 1); };
        for (const MemoryLimits& set : {MemoryLimits{.message = lower(limits.message)},
                                        {.round = lower(limits.round)},
                                        {.queue = lower(limits.queue)},
                                        {.shared = lower(limits.shared)},
                                        {.ledger = lower(limits.ledger)},
                                        {.evicted = lower(limits.evicted)},
                                        {.connections = lower(limits.connections)},
                                        {.calls = lower(limits.calls)},
                                        {.copy_on_write = lower(limits.copy_on_write)}}) {
          asked.set = set;
          EXPECT_GE(2 * PlanMemory(asked).tables_mib, mib) << mib << " MiB, a limit by " << part;
        }
        asked.set = {};
      }
    }
  }
}

TEST(MemoryPlan, SetsAsideWhatOpenCallsTake) {
  const auto aside = [](std::uint64_t calls) {
    return SetAsideFor(OnCpu(64 * kGiB), {.connections = 4096, .calls = calls}).process;
  };
  EXPECT_EQ(aside(4'000'000) - aside(1024), DivideUp(3'998'976 * kCallKib, 1024));
  MemoryAsked asked = OnCpu(4 * kGiB);
  const MemoryLimits limits = PlanMemory(asked).limits;
  EXPECT_LT(limits.calls, 16'384U) << "fewer where memory is short";
  EXPECT_EQ(limits.calls, 64 * limits.round);
  asked.least_calls = 8192;
  EXPECT_EQ(PlanMemory(asked).limits.calls, 8192U);
}

TEST(MemoryPlan, GivesTablesMoreMemoryWhereLimitsAreLower) {
  const std::uint64_t by_default = PlanMemory(OnCpu(16 * kGiB)).tables_mib;
  EXPECT_GT(PlanMemory(OnCpu(16 * kGiB, {.round = 64, .queue = 128})).tables_mib, by_default + 4 * kGiB);
}

}  // namespace
}  // namespace slotwise::sizing
