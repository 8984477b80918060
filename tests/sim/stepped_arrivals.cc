#include "tests/sim/stepped_arrivals.h"

#include <cstring>
#include <utility>

#include "kernels/arrivals.inl"
#include "kernels/backend/cpu.h"

namespace slotwise::sim {
namespace {

// What the launches of this thread's copy call. Backends have no state of their own.
thread_local const std::function<void()>* pause_of_copy = nullptr;

struct SteppedBackend : CpuBackend {
  template <class Index, class F>
  static void ForEach(Queue& /*queue*/, Index n, F f) {
    for (Index i = 0; i < n; ++i) {
      if (pause_of_copy != nullptr) (*pause_of_copy)();
      f(i);
    }
  }
};

class SteppedArrivals final : public Arrivals {
 public:
  explicit SteppedArrivals(std::function<void()> pause) : pause_(std::move(pause)) {}

  std::shared_ptr<std::byte[]> Take(std::size_t bytes) override { return memory_->Take(bytes); }
  void Copy(std::span<const ArrivingArray> arrays, std::span<ArrivedArray> found) override {
    pause_of_copy = &pause_;
    on_steps_.Copy(arrays, found.data());
    pause_of_copy = nullptr;
    for (std::size_t i = 0; i < arrays.size(); ++i) found[i].words = HashedWords(arrays[i]);
  }
  void Download(void* to, const void* from, std::size_t bytes) override {
    pause_();
    std::memcpy(to, from, bytes);
  }

 private:
  const std::function<void()> pause_;
  const std::unique_ptr<Arrivals> memory_ = MakeCpuArrivals();
  CpuQueue queue_{1};
  ArrivalsOn<SteppedBackend> on_steps_{queue_};
};

}  // namespace

std::unique_ptr<Arrivals> MakeSteppedArrivals(std::function<void()> pause) {
  return std::make_unique<SteppedArrivals>(std::move(pause));
}

}  // namespace slotwise::sim
