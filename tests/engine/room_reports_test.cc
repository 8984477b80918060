// Tests the log messages about a journal that finds no space.
#include "server/engine/room_reports.h"

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class RoomReportsTest : public ::testing::Test {
 protected:
  RoomReportsTest() {
    auto log =
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said_));
    log->set_pattern("%v");
    spdlog::set_default_logger(std::move(log));
  }
  ~RoomReportsTest() override { spdlog::set_default_logger(before_); }

  void NoneAt(int second) {
    reports_.OnNone(
        ResourceExhausted("the journal in data/journal/rank-0 has no space: No space left on device"), 4096,
        RoomReports::Time(seconds(1000 + second)));
  }
  void RoomAt(int second) { reports_.OnRoom(RoomReports::Time(seconds(1000 + second))); }
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    std::istringstream text(said_.str());
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    said_.str({});
    return lines;
  }

 private:
  std::ostringstream said_;
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  RoomReports reports_;
};

TEST_F(RoomReportsTest, SayItOnceAMinuteAndThatItGoesOn) {
  RoomAt(0);
  EXPECT_THAT(Lines(), IsEmpty());
  NoneAt(1);
  EXPECT_THAT(Lines(),
              ElementsAre("updates are refused, 1 of them in 0 s: the journal in data/journal/rank-0 has no "
                          "space: No space left on device (4096 bytes were wanted)"));
  for (int second = 1; second < 61; ++second) NoneAt(second);
  EXPECT_THAT(Lines(), IsEmpty());
  NoneAt(61);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("updates are refused, 62 of them in 60 s: the journal in ")));
  RoomAt(70);
  EXPECT_THAT(Lines(),
              ElementsAre("the journal goes on: it had no room for 69 s, in which 62 updates were refused"));
  RoomAt(71);
  EXPECT_THAT(Lines(), IsEmpty());
}

// A disk on which small updates find room, and large ones do not.
TEST_F(RoomReportsTest, ChangesBackAndForthAreTwoLinesAMinute) {
  std::size_t lines = 0;
  for (int second = 0; second < 120; ++second) {
    NoneAt(second);
    RoomAt(second);
    lines += Lines().size();
  }
  EXPECT_EQ(lines, 4U);
}

}  // namespace
}  // namespace slotwise
