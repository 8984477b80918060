// DeviceArray is an array in a device's memory that detects writes past its ends.
//
// Thread-safety: as its device's.
#ifndef SLOTWISE_TESTS_SUPPORT_DEVICE_ARRAY_H_
#define SLOTWISE_TESTS_SUPPORT_DEVICE_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/shard.h"

namespace slotwise::test {

template <class T>
class DeviceArray {
 public:
  DeviceArray(Device& device, std::span<const T> values)
      : device_(device),
        size_(values.size()),
        memory_(static_cast<std::byte*>(device.Allocate(values.size_bytes() + 2 * kGuardBytes))) {
    const std::vector<std::byte> guard(kGuardBytes, kGuard);
    device_.Upload(memory_, guard.data(), kGuardBytes);
    device_.Upload(memory_ + kGuardBytes + size_bytes(), guard.data(), kGuardBytes);
    if (size_ > 0) {
      device_.Upload(data(), values.data(), size_bytes());
    }
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { device_.Free(memory_); }

  T* data() { return reinterpret_cast<T*>(memory_ + kGuardBytes); }
  std::span<const T> span() { return {data(), size_}; }

  // Returns the current values. Fails the test if memory next to them was written.
  std::vector<T> Download() {
    for (const std::byte* guard : {memory_, memory_ + kGuardBytes + size_bytes()}) {
      std::vector<std::byte> found(kGuardBytes);
      device_.Download(found.data(), guard, kGuardBytes);
      if (std::any_of(found.begin(), found.end(), [](std::byte b) { return b != kGuard; })) {
        ADD_FAILURE() << "a write " << (guard == memory_ ? "before" : "past the end of") << " an array of "
                      << size_;
      }
    }
    std::vector<T> values(size_);
    if (size_ > 0) {
      device_.Download(values.data(), data(), size_bytes());
    }
    return values;
  }

 private:
  static constexpr std::size_t kGuardBytes = 64;  // keeps the alignment that Allocate gives
  static constexpr std::byte kGuard{0xA5};

  std::size_t size_bytes() const { return size_ * sizeof(T); }

  Device& device_;
  std::size_t size_;
  std::byte* memory_;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_DEVICE_ARRAY_H_
