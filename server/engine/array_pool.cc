#include "server/engine/array_pool.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace slotwise {

// The arrays that nobody reads, smallest first.
class ArrayPool::Kept {
 public:
  Kept() { arrays_.reserve(kKept + 1); }  // so that Put allocates nothing

  // The smallest one of n elements or more.
  std::optional<Array> Take(std::size_t n) {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::lower_bound(arrays_, n, {}, &Array::size);
    if (found == arrays_.end()) return std::nullopt;
    Array array = std::move(*found);
    arrays_.erase(found);
    return array;
  }

  void Put(Array array) noexcept {
    std::optional<Array> dropped;  // and freed without the lock
    const std::scoped_lock lock(mutex_);
    arrays_.insert(std::ranges::upper_bound(arrays_, array.size, {}, &Array::size), std::move(array));
    if (arrays_.size() <= kKept) return;
    dropped = std::move(arrays_.front());
    arrays_.erase(arrays_.begin());
  }

 private:
  std::mutex mutex_;
  std::vector<Array> arrays_;
};

ArrayPool::ArrayPool(Device& device) : device_(device), kept_(std::make_shared<Kept>()) {}

std::shared_ptr<float[]> ArrayPool::Take(std::size_t n) {
  std::optional<Array> array = kept_->Take(n);
  if (!array) array = Array{device_.AllocateHost(n * sizeof(float)), n};
  auto* floats = static_cast<float*>(array->memory.get());
  // Shared, because std::shared_ptr copies its deleter.
  auto owner = std::make_shared<Array>(std::move(*array));
  return {floats, [kept = kept_, owner = std::move(owner)](float*) { kept->Put(std::move(*owner)); }};
}

}  // namespace slotwise
