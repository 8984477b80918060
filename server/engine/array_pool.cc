#include "server/engine/array_pool.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

// Up to an eighth more, so that arrays of about the same size serve each other's purpose.
std::size_t RoundUp(std::size_t bytes) {
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

// The arrays that nobody reads.
class ArrayPool::Kept {
 public:
  explicit Kept(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // The one that came back last, of those that are large enough but not twice as large.
  std::optional<Array> Take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto found = std::find_if(arrays_.rbegin(), arrays_.rend(), [bytes](const Array& array) {
      return array.bytes >= bytes && array.bytes / 2 <= bytes;
    });
    if (found == arrays_.rend()) return std::nullopt;
    Array array = std::move(*found);
    arrays_.erase(std::next(found).base());
    bytes_ -= array.bytes;
    return array;
  }

  void Put(Array array) {
    std::vector<Array> dropped;  // and freed without the lock
    const std::scoped_lock lock(mutex_);
    bytes_ += array.bytes;
    arrays_.push_back(std::move(array));
    while (arrays_.size() > kMostKept || bytes_ > most_bytes_) {
      bytes_ -= arrays_.front().bytes;
      dropped.push_back(std::move(arrays_.front()));
      arrays_.pop_front();
    }
  }

 private:
  const std::size_t most_bytes_;
  std::mutex mutex_;
  std::deque<Array> arrays_;  // those that came back first, first
  std::size_t bytes_ = 0;
};

ArrayPool::ArrayPool(Device& device, std::size_t most_kept_bytes)
    : device_(device), kept_(std::make_shared<Kept>(most_kept_bytes)) {}

std::shared_ptr<void> ArrayPool::TakeBytes(std::size_t bytes) {
  std::optional<Array> array = kept_->Take(bytes);
  if (!array) {
    const std::size_t size = RoundUp(bytes);
    array = Array{device_.AllocateHost(size), size};
  }
  void* const memory = array->memory.get();
  // Shared, because std::shared_ptr copies its deleter.
  auto owner = std::make_shared<Array>(std::move(*array));
  return {memory, [kept = kept_, owner = std::move(owner)](void*) { kept->Put(std::move(*owner)); }};
}

}  // namespace slotwise
