#include "server/ops/logging.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <regex>
#include <string>
#include <thread>

namespace slotwise {
namespace {

std::string Logged(const LogOptions& options) {
  testing::internal::CaptureStderr();
  SetUpLogging(options);
  spdlog::debug("not at level info");
  spdlog::warn("a \"quoted\" name\nand a back\\slash");
  EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
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

// stderr is a pipe while this lives.
class PipedStderr {
 public:
  PipedStderr() : stderr_(dup(STDERR_FILENO)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    read_ = ends[0];
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
  }
  ~PipedStderr() {
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    if (reader_.joinable()) reader_.join();
    close(read_);
  }

  // From now on somebody reads.
  void Read() {
    reader_ = std::thread([this] {
      std::array<char, 4096> block;
      while (const ssize_t size = read(read_, block.data(), block.size())) {
        if (size < 0) break;
        text_.append(block.data(), static_cast<std::size_t>(size));
      }
    });
  }
  // REQUIRES: Read was called. Ends the pipe.
  std::string End() {
    dup2(stderr_, STDERR_FILENO);
    reader_.join();
    return text_;
  }

 private:
  int stderr_;
  int read_ = -1;
  std::thread reader_;
  std::string text_;  // of the reader until it has ended
};

TEST(Logging, WaitsForNoReaderAndSaysWhatItDropped) {
  PipedStderr piped;
  SetUpLogging({});
  constexpr int kLines = 20'000;  // a pipe holds 64 KiB
  for (int i = 0; i < kLines; ++i) spdlog::info("line {}", i);
  EXPECT_FALSE(FlushLog(std::chrono::milliseconds(10))) << "stderr is not read";
  piped.Read();
  EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
  spdlog::info("the last");
  EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
  const std::string said = piped.End();
  EXPECT_NE(said.find("info rank=0 line 19999\n"), std::string::npos);
  EXPECT_TRUE(said.ends_with("info rank=0 the last\n"));
  const std::regex form(R"(warning rank=0 (\d+) lines before this one were dropped)");
  int dropped = 0;
  int notices = 0;
  for (std::sregex_iterator notice(said.begin(), said.end(), form), end; notice != end; ++notice) {
    dropped += std::stoi((*notice)[1]);
    ++notices;
  }
  EXPECT_GT(dropped, kLines / 2);
  EXPECT_EQ(std::ranges::count(said, '\n') - notices + dropped, kLines + 1) << "each is there or counted";
}

}  // namespace
}  // namespace slotwise
