// The health service's answer follows the engine.
#include "server/rpc/health_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace slotwise {
namespace {

using std::chrono::milliseconds;

TEST(AHealthWatch, SaysThatAServerDoesNotServeWhileItsEngineIsStuck) {
  std::atomic<int> busy_ms = 0;
  std::promise<bool> first;
  std::promise<bool> second;
  std::vector<bool> said;  // of the watch's thread until it has ended
  {
    const HealthWatch watch(
        milliseconds(20), [&] { return milliseconds(busy_ms.load()); },
        [&](bool serving) {
          said.push_back(serving);
          if (said.size() == 1) first.set_value(serving);
          if (said.size() == 2) second.set_value(serving);
        });
    busy_ms = 19;
    busy_ms = 20;
    EXPECT_FALSE(first.get_future().get());
    busy_ms = 19;
    EXPECT_TRUE(second.get_future().get());
  }
  EXPECT_EQ(said, (std::vector<bool>{false, true}));
}

TEST(AHealthWatch, SaysNothingOfAServerThatServes) {
  std::atomic<int> looks = 0;
  const HealthWatch watch(
      milliseconds(10),
      [&] {
        ++looks;
        return milliseconds(9);
      },
      [](bool) { ADD_FAILURE(); });
  while (looks < 3) std::this_thread::yield();
}

}  // namespace
}  // namespace slotwise
