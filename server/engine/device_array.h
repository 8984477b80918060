// An array in a device's memory that is reused from round to round, and the ways into and out of it.
//
// On a device that shares the host's memory nothing is copied: host arrays are used where they are.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_DEVICE_ARRAY_H_
#define SLOTWISE_SERVER_ENGINE_DEVICE_ARRAY_H_

#include <algorithm>
#include <cstddef>

#include "kernels/shard.h"

namespace slotwise {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(Device& device) : device_(device) {}
  ~DeviceArray() { device_.Free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  // At least n elements; contents do not survive.
  T* Reserve(std::size_t n) {
    if (n > size_ || data_ == nullptr) {
      const std::size_t size = std::max({n, size_ + size_ / 2, std::size_t{1}});
      device_.Free(data_);
      data_ = nullptr;
      size_ = 0;
      data_ = static_cast<T*>(device_.Allocate(size * sizeof(T)));
      size_ = size;
    }
    return data_;
  }

  // The host's n elements as the device sees them.
  T* From(T* host, std::size_t n) {
    if (device_.SharesHostMemory()) return host;
    device_.Upload(Reserve(n), host, n * sizeof(T));
    return data_;
  }

  // Where the device should write what To() will bring to `host`.
  T* For(T* host, std::size_t n) { return device_.SharesHostMemory() ? host : Reserve(n); }

  // Brings n elements, written through For() or From() of the same `host`, to it.
  void To(T* host, std::size_t n) {
    if (!device_.SharesHostMemory()) device_.Download(host, data_, n * sizeof(T));
  }

 private:
  Device& device_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// The same in host memory of the device's choice. Throws std::bad_alloc.
template <class T>
class HostScratch {
 public:
  explicit HostScratch(Device& device) : device_(&device) {}

  T* Reserve(std::size_t n) {
    if (n > size_) {
      memory_.reset();
      size_ = 0;
      memory_ = device_->AllocateHost((n + n / 2) * sizeof(T));
      size_ = n + n / 2;
    }
    return data();
  }
  T* data() { return static_cast<T*>(memory_.get()); }

 private:
  Device* device_;
  HostMemory memory_{nullptr, nullptr};
  std::size_t size_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_DEVICE_ARRAY_H_
