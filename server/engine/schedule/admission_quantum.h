// AdmissionQuantum: bounds the bytes of requests that a rank proposes at once.
//
// Proposed requests are served before later ones, so a small request waits for one quantum, however much
// others have sent. The quantum follows the time that the ranks take for one: it grows after less than `time`
// and shrinks after more, by a quarter at most. Rounds much smaller than a quantum do not count. Each rank
// has its own quantum; the ranks agree on none.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_ADMISSION_QUANTUM_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_ADMISSION_QUANTUM_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace slotwise {

class AdmissionQuantum {
 public:
  // The time of a quantum. A round's fixed cost is small beside it: some 20 µs on a CPU, 100 µs on a GPU.
  static constexpr std::chrono::microseconds kTimeOnCpu{250};
  static constexpr std::chrono::microseconds kTimeOnGpu{1000};

  // A quantum has at least `least` bytes, and at most `most`.
  AdmissionQuantum(std::chrono::microseconds time, std::uint64_t least, std::uint64_t most)
      : time_(time), least_(std::min(least, most)), most_(most) {}

  std::uint64_t bytes() const { return bytes_; }

  // Adapts the quantum after a round that served `bytes` bytes of this rank's requests in `time`.
  void Took(std::uint64_t bytes, std::chrono::duration<double> time) {
    if (bytes < bytes_ / 2) return;
    const double change = std::clamp(std::chrono::duration<double>(time_) / time, 0.75, 1.25);
    const double changed = static_cast<double>(bytes_) * change;
    bytes_ = static_cast<std::uint64_t>(
        std::clamp(changed, static_cast<double>(least_), static_cast<double>(most_)));
  }

 private:
  const std::chrono::microseconds time_;
  const std::uint64_t least_;
  const std::uint64_t most_;
  std::uint64_t bytes_ = least_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_ADMISSION_QUANTUM_H_
