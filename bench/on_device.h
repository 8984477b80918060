// OnDevice owns an array in a device's memory.
// Thread-safety: as the Device's.
#ifndef SLOTWISE_BENCH_ON_DEVICE_H_
#define SLOTWISE_BENCH_ON_DEVICE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/shard.h"

namespace slotwise::bench {

template <class T>
class OnDevice {
 public:
  OnDevice(Device& device, std::size_t size)
      : device_(device), data_(static_cast<T*>(device.Allocate(size * sizeof(T)))), size_(size) {}
  OnDevice(Device& device, const std::vector<T>& host) : OnDevice(device, host.size()) {
    device.Upload(data_, host.data(), size_ * sizeof(T));
  }
  ~OnDevice() { device_.Free(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<T> span() const { return {data_, size_}; }
  std::vector<T> Host() const {
    std::vector<T> host(size_);
    device_.Download(host.data(), data_, size_ * sizeof(T));
    return host;
  }

 private:
  Device& device_;
  T* data_;
  std::size_t size_;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_ON_DEVICE_H_
