// Tests how long a client waits before it sends a request again.
#include "client/cpp/backoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace slotwise::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Range {
  steady_clock::duration least = steady_clock::duration::max();
  steady_clock::duration most{};
};

// Returns the range of many waits before the next try.
Range WaitsAfter(milliseconds retry_after, std::size_t attempts) {
  std::minstd_rand random(1);
  Range range;
  for (int i = 0; i < 10'000; ++i) {
    const auto wait = WaitToRetry(retry_after, attempts, random);
    range = {std::min(range.least, wait), std::max(range.most, wait)};
  }
  return range;
}

void ExpectUpTo(const Range& range, std::chrono::microseconds least, std::chrono::microseconds most) {
  EXPECT_GE(range.least, least);
  EXPECT_LT(range.least, least + (most - least) / 100);
  EXPECT_LE(range.most, most);
  EXPECT_GT(range.most, most - (most - least) / 100);
}

TEST(Backoff, DoublesUpToTwoSeconds) {
  ExpectUpTo(WaitsAfter({}, 1), milliseconds(25), milliseconds(50));
  ExpectUpTo(WaitsAfter({}, 2), milliseconds(50), milliseconds(100));
  ExpectUpTo(WaitsAfter({}, 6), milliseconds(800), milliseconds(1600));
  for (const std::size_t attempts : {7, 100, 1'000'000}) {
    ExpectUpTo(WaitsAfter({}, attempts), milliseconds(1000), milliseconds(2000));
  }
}

TEST(Backoff, IsWhatABusyServerSaidAndUpToHalfAsMuchAgainHoweverOften) {
  for (const std::size_t attempts : {1, 2, 50}) {
    ExpectUpTo(WaitsAfter(milliseconds(200), attempts), milliseconds(200), milliseconds(300));
  }
}

}  // namespace
}  // namespace slotwise::client
