// A worker runs its tasks in order, and yields to the thread that submitted them.
#include "server/engine/worker.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <vector>

namespace slotwise {
namespace {

TEST(WorkerTest, TasksAreDoneInTheirOrderByAThreadThatGivesWay) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  std::vector<int> done;
  std::promise<int> niceness;
  Worker worker(SystemThreads());
  for (int i = 0; i < 5; ++i) worker.Post([&done, i] { done.push_back(i); });
  worker.Post([&] { niceness.set_value(::getpriority(PRIO_PROCESS, 0)); });
  EXPECT_EQ(niceness.get_future().get(), std::min(19, before + 5));
  EXPECT_EQ(done, (std::vector{0, 1, 2, 3, 4}));
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);  // the caller's own
}

}  // namespace
}  // namespace slotwise
