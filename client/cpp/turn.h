// Turn: the place of a call in the order of a trainer's calls. Calls that come behind it are sent once it has
// ended.
// Thread-safety: any thread.
#ifndef SLOTWISE_CLIENT_CPP_TURN_H_
#define SLOTWISE_CLIENT_CPP_TURN_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "slotwise/gpu.h"

namespace slotwise::client {

class Turn final : public GpuPushUnderWay {
 public:
  // Hears whether the call has ended as it should.
  using Then = std::function<void(bool well)>;

  bool has_arrays() const override { return has_arrays_; }
  void TakeArrays() { has_arrays_ = true; }

  // The call has ended. Is called once.
  void End(bool well) {
    std::vector<Then> behind;
    {
      const std::lock_guard lock(mutex_);
      ended_well_ = well;
      behind.swap(behind_);
    }
    for (const Then& then : behind) then(well);
  }
  // Calls `then` once the call has ended: at once, or from the thread that ends it.
  void Await(Then then) {
    std::unique_lock lock(mutex_);
    if (!ended_well_) return behind_.push_back(std::move(then));
    const bool well = *ended_well_;
    lock.unlock();
    then(well);
  }

 private:
  std::atomic<bool> has_arrays_ = false;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::optional<bool> ended_well_;
  std::vector<Then> behind_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_TURN_H_
