// Unset limits follow the memory, and set limits must fit into it.
#include "server/ops/fit_limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "server/ops/config.h"

namespace slotwise {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

v1::ServerConfig Parsed(const std::string& text) {
  const auto config = ParseConfig(text, "server.pbtxt");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config->values;
}

using Mib = std::pair<std::uint32_t, std::uint32_t>;
Mib Fitted(const std::string& limits, const MemoryShare& memory) {
  v1::ServerConfig config = Parsed("limits { " + limits + " }");
  EXPECT_TRUE(FitLimits(memory, config).ok());
  return {config.limits().max_round_mib(), config.limits().max_queue_mib()};
}

std::string Refusal(const std::string& text, const MemoryShare& memory) {
  v1::ServerConfig config = Parsed(text);
  const auto plan = FitLimits(memory, config);
  EXPECT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kFailedPrecondition);
  return plan.status().message();
}

MemoryShare Cpu(std::uint64_t bytes) { return {.device = bytes, .host = bytes}; }

TEST(Limits, FollowTheMemoryWhereTheyAreNotSet) {
  EXPECT_EQ(Fitted("", Cpu(32 * kGiB)), Mib(512, 1024)) << "the least where there is plenty";
  EXPECT_EQ(Fitted("", Cpu(64 * kGiB)), Mib(1024, 2048));
  EXPECT_EQ(Fitted("", {.device = 80 * kGiB, .host = 256 * kGiB, .gpu = true}), Mib(1280, 2560));
  EXPECT_EQ(Fitted("", {.device = 80 * kGiB, .host = 32 * kGiB, .gpu = true}), Mib(1024, 2048))
      << "the host is small";
  EXPECT_EQ(Fitted("", Cpu(1000 * kGiB)), Mib(4096, 8192)) << "the most";
  EXPECT_EQ(Fitted("max_round_mib: 7", Cpu(256 * kGiB)), Mib(7, 1024));
  EXPECT_EQ(Fitted("max_queue_mib: 100", {.device = 80 * kGiB, .host = 256 * kGiB, .gpu = true}),
            Mib(1280, 100));
  EXPECT_EQ(Fitted("max_message_mib: 2047", Cpu(256 * kGiB)).second, 8192U);
  const auto [round, queue] = Fitted("", Cpu(kGiB));
  EXPECT_TRUE(8 <= round && round <= 64 && queue == 2 * round) << round << ", " << queue;
}

TEST(Limits, OfASmallHostAreAllThere) {
  v1::ServerConfig config = Parsed("durability { folder: \"/x\" }");
  const auto plan = FitLimits(Cpu(kGiB), config);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(config.limits().max_message_mib(), plan->limits.message);
  EXPECT_EQ(config.limits().max_shared_mib(), plan->limits.shared);
  EXPECT_EQ(config.limits().max_ledger_mib(), plan->limits.ledger);
  EXPECT_EQ(config.limits().max_evicted_mib(), plan->limits.evicted);
  EXPECT_EQ(config.limits().max_connections(), plan->limits.connections);
  EXPECT_EQ(config.limits().max_calls(), plan->limits.calls);
  EXPECT_EQ(config.limits().max_gpu_shared_mib(), 64U);
  EXPECT_EQ(config.durability().max_copy_on_write_mib(), plan->limits.copy_on_write);
  EXPECT_GT(plan->aside.checkpoint, plan->limits.copy_on_write);
}

TEST(Limits, ThatDoNotFitAreNamedWithWhatTheyTakeAndWhatThereIs) {
  const std::string words = Refusal("limits { max_round_mib: 512 max_shared_mib: 33 }", Cpu(kGiB));
  EXPECT_TRUE(
      words.starts_with("limits.max_round_mib: 512, limits.max_shared_mib: 33: with this a rank sets aside "))
      << words;
  EXPECT_NE(words.find("rounds 3584"), std::string::npos) << words;
  EXPECT_NE(words.find("shared with clients 33,"), std::string::npos) << words;
  EXPECT_NE(words.find("share of its host's memory is 1024 MiB"), std::string::npos) << words;
  const std::string calls = Refusal("limits { max_calls_per_connection: 100000 }", Cpu(kGiB));
  EXPECT_TRUE(calls.starts_with("limits.max_calls_per_connection: 100000: with this a rank sets aside "))
      << calls;
  const std::string nothing = Refusal("", Cpu(kGiB / 16));
  EXPECT_TRUE(nothing.starts_with("a rank's share of its host's memory is 64 MiB, ")) << nothing;
  EXPECT_NE(Refusal("durability { folder: \"/x\" max_copy_on_write_mib: 9999 }", Cpu(kGiB))
                .find("durability.max_copy_on_write_mib: 9999"),
            std::string::npos);
  v1::ServerConfig kept_nowhere = Parsed("durability { max_copy_on_write_mib: 9999 }");
  EXPECT_TRUE(FitLimits(Cpu(kGiB), kept_nowhere).ok()) << "without a folder nothing is kept meanwhile";
}

TEST(Limits, OfAGpusHostHaveToFitTheHost) {
  const MemoryShare small{.device = 80 * kGiB, .host = 4 * kGiB, .gpu = true};
  const auto [round, queue] = Fitted("", small);
  EXPECT_TRUE(50 < round && round < 512) << round << ", " << queue;
  EXPECT_NE(Refusal("limits { max_queue_mib: 2000 }", small).find("limits.max_queue_mib: 2000: "),
            std::string::npos);
}

}  // namespace
}  // namespace slotwise
