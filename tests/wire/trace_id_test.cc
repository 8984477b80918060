#include "wire/trace_id.h"

#include <gtest/gtest.h>

#include <string>

namespace slotwise {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kWhole = "00-" + kTrace + "-00f067aa0ba902b7-01";

TEST(TraceId, IsTheSecondFieldOfATraceparent) {
  EXPECT_EQ(TraceIdOf(kWhole), kTrace);
  EXPECT_EQ(TraceIdOf("cc-" + kTrace + "-00f067aa0ba902b7-01-what-comes-later"), kTrace);
}

TEST(TraceId, IsNoneOfAnythingElse) {
  for (std::size_t size = 0; size < kWhole.size(); ++size)
    EXPECT_EQ(TraceIdOf(kWhole.substr(0, size)), "") << size;
  for (std::size_t i = 0; i < kWhole.size(); ++i) {
    for (const char c : {'g', 'A', '\n', '"', '\0', '-'}) {
      std::string wrong = kWhole;
      if (wrong[i] == c) continue;
      wrong[i] = c;
      EXPECT_EQ(TraceIdOf(wrong), "") << i << " " << c;
    }
  }
  EXPECT_EQ(TraceIdOf(kWhole + "-01"), "");  // of version 00, which has no more
  EXPECT_EQ(TraceIdOf("cc" + kWhole.substr(2) + "x"), "");
  EXPECT_EQ(TraceIdOf("ff" + kWhole.substr(2)), "");
  EXPECT_EQ(TraceIdOf("00-" + std::string(32, '0') + "-00f067aa0ba902b7-01"), "");
}

}  // namespace
}  // namespace slotwise
