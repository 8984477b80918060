// A device with its own memory whose copies run late, like a GPU's, for machines without a GPU.
//
// Its work is done on the CPU. Work is queued and done in the order of its stream. Without a schedule, it is
// done as late as the order allows: for the device's own stream at a shard's next call with an answer, for
// other streams at a Wait, or before another stream that follows. With a schedule, it is done when the
// schedule says. So code that reuses memory too early, reads it without waiting, or forgets the order of two
// streams, gets wrong bytes. Freed memory is overwritten.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_
#define SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/shard.h"

namespace slotwise::test {

// Decides when a device does the work of its streams.
class LateSchedule {
 public:
  virtual ~LateSchedule() = default;
  LateSchedule(const LateSchedule&) = delete;
  LateSchedule& operator=(const LateSchedule&) = delete;

  // Returns the number of pieces of work to try now, each of a stream from Choose. Called at every call of
  // the device, its streams and its shards.
  virtual std::size_t Steps() = 0;
  // Returns a stream's index, 0 .. streams - 1. REQUIRES: streams > 0.
  virtual std::size_t Choose(std::size_t streams) = 0;

  // Called before a thread waits for a stream. It may throw.
  virtual void BeforeWait() {}
  // Called when a thread waits for work that waits for another device. Returns true when `ready()` holds, or
  // false if it never will.
  virtual bool AwaitOthers(const std::function<bool()>& ready) noexcept = 0;

 protected:
  LateSchedule() = default;
};

// Makes a device whose work is done as late as possible. An `ordinal` from 0 on pretends to be a GPU.
std::unique_ptr<Device> MakeApartDevice(int ordinal = -1);

// Makes a device whose work is done when `schedule` says. REQUIRES: `schedule` outlives it.
std::unique_ptr<Device> MakeApartDevice(LateSchedule& schedule, int ordinal = -1);

// Makes a device with a schedule drawn from the seed: the latest, the earliest, or a mixture.
std::unique_ptr<Device> MakeSeededApartDevice(std::uint64_t seed, int ordinal = -1);

// The functions below take devices that the functions above made.

// Queues `work` on `stream`. The work begins once all earlier work of the stream is done and `ready()` holds;
// `ready` is called repeatedly from then on.
void AddWork(Stream& stream, std::function<bool()> ready, std::function<void()> work);

// Lets the device do a piece of work. Returns false if it can do none.
bool MakeProgress(Device& device);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_
