// These arrays are reused from round to round: DeviceArray in a device's memory, HostScratch in host memory
// of the device's choice.
//
// Reserve returns an array of at least n elements, whose contents do not survive the next Reserve. Throws
// std::bad_alloc.
// Thread-safety: same as the device.
#ifndef SLOTWISE_SERVER_COLLECTIVE_DEVICE_ARRAY_H_
#define SLOTWISE_SERVER_COLLECTIVE_DEVICE_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <new>

#include "kernels/shard.h"
#include "slotwise/sizing.h"

namespace slotwise {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(Device& device) : device_(device) {}
  ~DeviceArray() { device_.Free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* Reserve(std::size_t n) {
    if (n > size_ || data_ == nullptr) {
      const std::size_t ahead = std::max<std::size_t>(sizing::ScratchAhead(n, size_), 1);
      device_.Wait();  // for work that still uses the smaller array
      device_.Free(data_);
      data_ = nullptr;
      size_ = 0;
      try {
        Allocate(ahead);
      } catch (const std::bad_alloc&) {
        Allocate(std::max(n, std::size_t{1}));
      }
    }
    return data_;
  }
  T* data() { return data_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

 private:
  void Allocate(std::size_t size) {
    data_ = static_cast<T*>(device_.Allocate(size * sizeof(T)));
    size_ = size;
  }

  Device& device_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
class HostScratch {
 public:
  explicit HostScratch(Device& device) : device_(device) {}

  T* Reserve(std::size_t n) {
    if (n > size_) {
      device_.Wait();
      memory_.reset();
      size_ = 0;
      memory_ = device_.AllocateHost((n + n / 2) * sizeof(T));
      size_ = n + n / 2;
    }
    return data();
  }
  T* data() { return static_cast<T*>(memory_.get()); }

 private:
  Device& device_;
  HostMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_DEVICE_ARRAY_H_
