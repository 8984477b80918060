#include "server/engine/array_pool.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <list>
#include <mutex>
#include <new>
#include <span>
#include <utility>

namespace slotwise {
namespace {

// Sizes are rounded up by at most an eighth, to 4096 · (8 + e) / 8 · 2^p bytes, so that an array can be
// reused for similar sizes. Each such size is a class; the size doubles every kClassesOfDouble classes.
constexpr std::size_t kLeastSize = 4096;
constexpr std::size_t kClassesOfDouble = 8;
constexpr std::size_t kClasses =
    (std::numeric_limits<std::size_t>::digits - std::bit_width(kLeastSize) + 1) * kClassesOfDouble + 1;

std::size_t RoundUp(std::size_t bytes) {
  if (bytes <= kLeastSize) return kLeastSize;
  const std::size_t step = std::bit_floor(bytes) / kClassesOfDouble;
  return (bytes + step - 1) / step * step;
}

// Returns the class of a size. REQUIRES: the size was rounded up.
std::size_t ClassOf(std::size_t size) {
  const std::size_t power = std::bit_floor(size);
  const std::size_t doubled = static_cast<std::size_t>(std::bit_width(power) - std::bit_width(kLeastSize));
  return doubled * kClassesOfDouble + (size - power) / (power / kClassesOfDouble);
}

}  // namespace

// Holds the arrays that are not in use, by size and in the order in which they came back. An array keeps its
// list node when it is taken, so that Put allocates nothing.
class ArrayPool::Kept {
 public:
  explicit Kept(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // Takes the array that came back last among the arrays that are large enough but at most twice as large.
  // Returns an empty list if there is none.
  std::list<Array> Take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const std::span fitting = std::span(classes_).subspan(ClassOf(RoundUp(bytes)));
    const auto found = std::ranges::max_element(fitting.first(std::min(kClassesOfDouble + 1, fitting.size())),
                                                {}, &Kept::CameBack);
    std::list<Array> taken;
    if (found->empty()) return taken;
    taken.splice(taken.end(), *found, std::prev(found->end()));
    bytes_ -= taken.front().bytes;
    in_use_ += taken.front().bytes;
    return taken;
  }

  // Counts a new array as in use, and frees kept arrays beyond the bound.
  void TakeNew(std::size_t bytes) {
    {
      const std::scoped_lock lock(mutex_);
      in_use_ += bytes;
    }
    FreeTooMany();
  }

  // Undoes TakeNew, because there was no memory for the array.
  void NotTaken(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    in_use_ -= bytes;
  }

  // `array` is a list of one.
  void Put(std::list<Array>& array) noexcept {
    {
      const std::scoped_lock lock(mutex_);
      Array& back = array.front();
      in_use_ -= back.bytes;
      if (back.bytes > most_bytes_) return;
      bytes_ += back.bytes;
      back.came_back = ++arrivals_;
      std::list<Array>& like = classes_[ClassOf(back.bytes)];
      like.splice(like.end(), array);
    }
    FreeTooMany();
  }

 private:
  // Returns when the last of the arrays came back; 0 if there are none.
  static std::uint64_t CameBack(const std::list<Array>& arrays) {
    return arrays.empty() ? 0 : arrays.back().came_back;
  }

  // Arrays are freed outside the lock, because that may take long.
  void FreeTooMany() noexcept {
    while (!RemoveOneTooMany().empty()) {
    }
  }
  // Removes the array that came back first, if there are too many.
  std::list<Array> RemoveOneTooMany() noexcept {
    const std::scoped_lock lock(mutex_);
    std::list<Array> removed;
    if (bytes_ == 0 || bytes_ + in_use_ <= most_bytes_) return removed;
    std::list<Array>* oldest = nullptr;
    for (std::list<Array>& arrays : classes_) {
      if (arrays.empty()) continue;
      if (oldest == nullptr || arrays.front().came_back < oldest->front().came_back) oldest = &arrays;
    }
    removed.splice(removed.end(), *oldest, oldest->begin());
    bytes_ -= removed.front().bytes;
    return removed;
  }

  const std::size_t most_bytes_;
  std::mutex mutex_;
  std::array<std::list<Array>, kClasses> classes_;  // each in the order of return
  std::uint64_t arrivals_ = 0;
  std::size_t bytes_ = 0;   // of all of `classes_`
  std::size_t in_use_ = 0;  // bytes of taken arrays
};

ArrayPool::ArrayPool(Device& device, std::size_t most_bytes)
    : device_(device), kept_(std::make_shared<Kept>(most_bytes)) {}

std::shared_ptr<void> ArrayPool::TakeBytes(std::size_t bytes) {
  std::list<Array> array = kept_->Take(bytes);
  if (array.empty()) {
    const std::size_t size = RoundUp(bytes);
    kept_->TakeNew(size);
    try {
      array.push_back({device_.AllocateHost(size), size});
    } catch (const std::bad_alloc&) {
      kept_->NotTaken(size);
      throw;
    }
  }
  void* const memory = array.front().memory.get();
  // The list is shared, because std::shared_ptr copies its deleter.
  auto owner = std::make_shared<std::list<Array>>(std::move(array));
  return {memory, [kept = kept_, owner = std::move(owner)](void*) { kept->Put(*owner); }};
}

}  // namespace slotwise
