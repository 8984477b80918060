// Queues of calls that have ended.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "client/c/handles.h"

struct slotwise_queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<slotwise_call*> calls;  // guarded by mutex
};

slotwise_queue* slotwise_queue_new() {
  return slotwise::c::OrNull([] { return new slotwise_queue; });
}

void slotwise_queue_free(slotwise_queue* queue) { delete queue; }

void slotwise_queue_post(void* queue, slotwise_call* call) {
  auto* const to = static_cast<slotwise_queue*>(queue);
  const std::lock_guard lock(to->mutex);
  to->calls.push_back(call);
  to->changed.notify_one();
}

slotwise_call* slotwise_queue_take(slotwise_queue* queue, std::int64_t most_ms) {
  std::unique_lock lock(queue->mutex);
  const auto there = [queue] { return !queue->calls.empty(); };
  if (most_ms < 0) {
    queue->changed.wait(lock, there);
  } else {
    queue->changed.wait_for(lock, slotwise::c::Bounded(most_ms), there);
  }
  if (queue->calls.empty()) return nullptr;
  slotwise_call* const call = queue->calls.front();
  queue->calls.pop_front();
  return call;
}
