#include "server/ops/logging.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <regex>
#include <string>

namespace slotwise {
namespace {

std::string Logged(const LogOptions& options) {
  testing::internal::CaptureStderr();
  SetUpLogging(options);
  spdlog::debug("not at level info");
  spdlog::warn("a \"quoted\" name\nand a back\\slash");
  return testing::internal::GetCapturedStderr();
}

TEST(Logging, WritesTimeLevelAndRankAsText) {
  const std::string line = Logged({.rank = Rank{3}});
  const std::regex form(
      R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning rank=3 a "quoted" name\nand a back\\slash\n)");
  EXPECT_TRUE(std::regex_match(line, form)) << line;
}

TEST(Logging, WritesOneJsonObjectALine) {
  const std::string line = Logged({.format = v1::LOG_FORMAT_JSON, .rank = Rank{3}});
  const std::regex form(R"(\{"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","level":"warning","rank":3,)"
                        R"("message":"a \\"quoted\\" name\\u000aand a back\\\\slash"\}\n)");
  EXPECT_TRUE(std::regex_match(line, form)) << line;
}

TEST(Logging, WritesWhatItsLevelAsksFor) {
  EXPECT_EQ(Logged({.level = "error"}), "");
  EXPECT_NE(Logged({.level = "debug"}).find("not at level info"), std::string::npos);
}

}  // namespace
}  // namespace slotwise
