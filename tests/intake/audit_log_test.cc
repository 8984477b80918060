// The audit log is bounded for each principal and kind of action, and counts the entries that it left out.
#include "server/intake/audit_log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

class AuditLog : public testing::Test {
 protected:
  AuditLog() {
    auto logger = std::make_shared<spdlog::logger>(
        "audit_log_test", std::make_shared<spdlog::sinks::ostream_sink_st>(text_, true));
    logger->set_pattern("%v");
    spdlog::set_default_logger(std::move(logger));
    LogHeldBackDeeds(std::chrono::steady_clock::time_point::max());  // what other tests left
    Lines();
  }
  ~AuditLog() override { spdlog::set_default_logger(before_); }

  // Returns the lines since it was called before.
  std::vector<std::string> Lines() {
    std::istringstream all(text_.str());
    text_.str({});
    std::vector<std::string> lines;
    for (std::string line; std::getline(all, line);) lines.push_back(line);
    return lines;
  }
  static Caller CallerOf(const std::string& name) {
    return Caller("ipv4:10.0.0.1:5", Caller::Clock::time_point::max(), CallKind::kOther,
                  std::make_shared<const Principal>(Principal{.name = name}));
  }
  void DoTimes(std::uint32_t times, Deed kind, const Caller& caller) const {
    for (std::uint32_t i = 0; i < times; ++i) LogDeed(kind, "a thing is done", caller);
  }

 private:
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream text_;
};

TEST_F(AuditLog, NamesWhoAsked) {
  LogDeed(Deed::kMakes, "table ads is made", CallerOf("named"));
  LogDeed(Deed::kMakes, "table ads is made", Caller("unix:uid=5,pid=7"));
  EXPECT_EQ(Lines(), (std::vector<std::string>{"table ads is made, as ipv4:10.0.0.1:5, named asked",
                                               "table ads is made, as unix:uid=5,pid=7 asked"}));
}

// Who does much hides neither what others do nor what he does of another kind. All callers of a server
// without principals have one bound.
TEST_F(AuditLog, HasABoundForEachPrincipalAndKind) {
  const Caller busy = CallerOf("busy");
  DoTimes(3 * kAuditLines, Deed::kMakes, busy);
  EXPECT_EQ(Lines().size(), kAuditLines);
  for (const Deed kind : {Deed::kTakesAway, Deed::kTakesAlong, Deed::kSets}) {
    DoTimes(3 * kAuditLines, kind, busy);
    EXPECT_EQ(Lines().size(), kAuditLines) << static_cast<int>(kind);
  }
  DoTimes(1, Deed::kMakes, CallerOf("quiet"));
  EXPECT_EQ(Lines().size(), 1U);
  DoTimes(kAuditLines, Deed::kSets, Caller("one"));
  DoTimes(kAuditLines, Deed::kSets, Caller("two"));
  EXPECT_EQ(Lines().size(), kAuditLines);
}

TEST_F(AuditLog, CountsWhatItHeldBackInTheNextLine) {
  const Caller caller = CallerOf("counted");
  const auto begin = std::chrono::steady_clock::now();
  DoTimes(kAuditLines, Deed::kMakes, caller);
  ASSERT_EQ(Lines().size(), kAuditLines);
  std::uint64_t held_back = 0;
  std::vector<std::string> next;
  while (std::chrono::steady_clock::now() - begin < 6 * kAuditInterval) {
    DoTimes(1, Deed::kMakes, caller);
    next = Lines();
    if (!next.empty()) break;
    ++held_back;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kAuditInterval);
  EXPECT_EQ(next, (std::vector<std::string>{"a thing is done, as ipv4:10.0.0.1:5, counted asked (" +
                                            std::to_string(held_back) + " more such lines were held back)"}));
  EXPECT_GT(held_back, 0U);
}

TEST_F(AuditLog, CountsWhatItHeldBackWhereNoLineFollows) {
  const auto begin = std::chrono::steady_clock::now();
  DoTimes(kAuditLines + 3, Deed::kTakesAway, CallerOf("taker"));
  DoTimes(kAuditLines + 1, Deed::kMakes, CallerOf("maker"));
  DoTimes(kAuditLines + 2, Deed::kTakesAlong, CallerOf("maker"));
  DoTimes(kAuditLines, Deed::kSets, CallerOf("maker"));
  DoTimes(kAuditLines + 4, Deed::kSets, CallerOf("setter"));
  DoTimes(kAuditLines + 5, Deed::kTakesAway, Caller("ipv4:10.0.0.1:5"));
  Lines();
  LogHeldBackDeeds(begin + kAuditInterval - std::chrono::nanoseconds(1));
  EXPECT_EQ(Lines(), std::vector<std::string>{});
  LogHeldBackDeeds(std::chrono::steady_clock::now() + kAuditInterval);
  EXPECT_EQ(Lines(), (std::vector<std::string>{"1 more lines of what maker made were held back",
                                               "5 more lines of what callers took away were held back",
                                               "3 more lines of what taker took away were held back",
                                               "2 more lines of what maker took along were held back",
                                               "4 more lines of what setter set were held back"}));
  LogHeldBackDeeds(std::chrono::steady_clock::time_point::max());
  EXPECT_EQ(Lines(), std::vector<std::string>{});
}

// An interval that still runs is counted at the end too, since no later line can count it.
TEST_F(AuditLog, CountsAllAtTheEnd) {
  const std::vector<std::string> counted{"5 more lines of what ender made were held back"};
  {
    const HeldBackDeeds deeds;
    DoTimes(kAuditLines + 5, Deed::kMakes, CallerOf("ender"));
    Lines();
  }
  EXPECT_EQ(Lines(), counted);
}

}  // namespace
}  // namespace slotwise
