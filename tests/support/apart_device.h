// A device whose memory is not the host's and whose copies run late, as a GPU's do, on a machine without one.
//
// Its work is the CPU's. What is asked of a stream is kept back and done in the stream's order: without a
// schedule, as late as the streams' order allows (by a shard's next call that answers, for the device's own
// stream; by a Wait, or by another stream that comes after); with one, whenever the schedule draws it. So
// code that reuses memory too early, reads it without waiting, or forgets that a stream comes after another,
// gets wrong bytes. Memory that was given back is overwritten.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_
#define SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/shard.h"

namespace slotwise::test {

// Says when a device that plays a GPU does what its streams were asked for.
class LateSchedule {
 public:
  virtual ~LateSchedule() = default;
  LateSchedule(const LateSchedule&) = delete;
  LateSchedule& operator=(const LateSchedule&) = delete;

  // How many pieces of work the device tries to do now, each of a stream that Choose names. Asked at every
  // call of the device, its streams and its shards.
  virtual std::size_t Steps() = 0;
  // 0 .. streams - 1. REQUIRES: streams > 0.
  virtual std::size_t Choose(std::size_t streams) = 0;

  // A thread is about to wait for a stream. It may throw.
  virtual void BeforeWait() {}
  // A thread waits for work that waits for another device. Returns true when `ready()` holds, false if it
  // never will.
  virtual bool AwaitOthers(const std::function<bool()>& ready) noexcept = 0;

 protected:
  LateSchedule() = default;
};

// `ordinal` is what it says of itself: 0 and up pretends to be a GPU. Its work is done as late as it can be.
std::unique_ptr<Device> MakeApartDevice(int ordinal = -1);

// Its work is done when `schedule`, which outlives it, says so.
std::unique_ptr<Device> MakeApartDevice(LateSchedule& schedule, int ordinal = -1);

// Its schedule is drawn from the seed: the latest one, the earliest one, or a mixture.
std::unique_ptr<Device> MakeSeededApartDevice(std::uint64_t seed, int ordinal = -1);

// Of devices that the functions above made.

// Asks `stream` for `work`, which begins when `ready()` holds and everything that the stream was asked for
// before is done. `ready` is asked again and again from then on.
void AddWork(Stream& stream, std::function<bool()> ready, std::function<void()> work);

// Lets the device do a piece of work. False if it can do none.
bool MakeProgress(Device& device);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_APART_DEVICE_H_
