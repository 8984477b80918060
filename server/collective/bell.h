// A Bell wakes one thread that waits for news, which may come from any thread of several processes.
//
// A thread that waits reads the count of rings, then looks for news, and only then waits for another count: a
// ring after the look ends the wait at once.
//
// Thread-safety: any thread may Ring; one thread at a time waits. The words outlive the bell.
// Errors: none.
#ifndef SLOTWISE_SERVER_COLLECTIVE_BELL_H_
#define SLOTWISE_SERVER_COLLECTIVE_BELL_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace slotwise {

class Bell {
 public:
  // A bell's words lie in memory that all its processes have mapped. A new bell's words are 0.
  struct Words {
    std::uint32_t rung;   // modulo 2^32
    std::uint32_t waits;  // 1 if a thread waits, or is about to
  };

  explicit Bell(Words& words) : words_(&words) {}

  // Returns how often the bell was rung.
  std::uint32_t rung() const { return Rung().load(); }

  // Wakes the thread that waits, which then sees everything that the caller did before.
  void Ring();

  // Returns once the bell was rung more than `seen` times, or `most` has passed.
  void Await(std::uint32_t seen, std::chrono::microseconds most);

 private:
  // Each of Ring and Await writes one word and then reads the other, so one of them sees the other's: that
  // takes the sequentially consistent order, which is std::atomic_ref's default.
  std::atomic_ref<std::uint32_t> Rung() const { return std::atomic_ref(words_->rung); }
  std::atomic_ref<std::uint32_t> Waits() const { return std::atomic_ref(words_->waits); }

  Words* words_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_BELL_H_
