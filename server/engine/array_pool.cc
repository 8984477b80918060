#include "server/engine/array_pool.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

// Rounds up by at most an eighth, so that arrays of about the same size serve each other's purpose.
std::size_t RoundUp(std::size_t bytes) {
  constexpr std::size_t kLeast = 4096;
  if (bytes <= kLeast) return kLeast;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

// The arrays that nobody reads.
class ArrayPool::Kept {
 public:
  explicit Kept(std::size_t most_bytes) : most_bytes_(most_bytes) {
    arrays_.reserve(kMostKept + 1);  // so that Put hardly ever allocates
  }

  // Takes the array that came back last, of those that are large enough but not more than twice as large.
  std::optional<Array> Take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto found = std::find_if(arrays_.rbegin(), arrays_.rend(), [bytes](const Array& array) {
      return array.bytes >= bytes && array.bytes <= 2 * RoundUp(bytes);
    });
    if (found == arrays_.rend()) return std::nullopt;
    Array array = Remove(std::next(found).base());
    in_use_ += array.bytes;
    return array;
  }

  // Makes room for an array that is new.
  void TakeNew(std::size_t bytes) {
    {
      const std::scoped_lock lock(mutex_);
      in_use_ += bytes;
    }
    FreeTooMany();
  }

  // The array of TakeNew does not exist: there was no memory.
  void NotTaken(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    in_use_ -= bytes;
  }

  void Put(Array array) noexcept {
    {
      const std::scoped_lock lock(mutex_);
      in_use_ -= array.bytes;
      if (array.bytes > most_bytes_) return;
      bytes_ += array.bytes;
      arrays_.push_back(std::move(array));
    }
    FreeTooMany();
  }

 private:
  // Arrays are freed outside the lock, because that may take long.
  void FreeTooMany() noexcept {
    while (const std::optional<Array> dropped = RemoveOneTooMany()) {
    }
  }
  std::optional<Array> RemoveOneTooMany() {
    const std::scoped_lock lock(mutex_);
    if (arrays_.empty() || (arrays_.size() <= kMostKept && bytes_ + in_use_ <= most_bytes_))
      return std::nullopt;
    return Remove(arrays_.begin());
  }
  // REQUIRES: mutex_ is held.
  Array Remove(std::vector<Array>::iterator place) {
    Array array = std::move(*place);
    arrays_.erase(place);
    bytes_ -= array.bytes;
    return array;
  }

  const std::size_t most_bytes_;
  std::mutex mutex_;
  std::vector<Array> arrays_;  // those that came back first, first
  std::size_t bytes_ = 0;      // of `arrays_`
  std::size_t in_use_ = 0;     // bytes of arrays that somebody reads or writes
};

ArrayPool::ArrayPool(Device& device, std::size_t most_bytes)
    : device_(device), kept_(std::make_shared<Kept>(most_bytes)) {}

std::shared_ptr<void> ArrayPool::TakeBytes(std::size_t bytes) {
  std::optional<Array> array = kept_->Take(bytes);
  if (!array) {
    const std::size_t size = RoundUp(bytes);
    kept_->TakeNew(size);
    try {
      array = Array{device_.AllocateHost(size), size};
    } catch (const std::bad_alloc&) {
      kept_->NotTaken(size);
      throw;
    }
  }
  void* const memory = array->memory.get();
  // Shared, because std::shared_ptr copies its deleter.
  auto owner = std::make_shared<Array>(std::move(*array));
  return {memory, [kept = kept_, owner = std::move(owner)](void*) { kept->Put(std::move(*owner)); }};
}

}  // namespace slotwise
