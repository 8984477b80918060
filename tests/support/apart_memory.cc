#include "tests/support/apart_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <new>
#include <stdexcept>

namespace slotwise::test {
namespace {

// Addresses alone: memory comes with the first use of a page.
constexpr std::size_t kAllBytes = std::size_t{16} << 30;
constexpr std::size_t kAlignment = 16;  // the widest load of a kernel

}  // namespace

ApartMemory::ApartMemory() {
  void* const all =
      mmap(nullptr, kAllBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  all_ = static_cast<std::byte*>(all);
  unused_ = all_;
}

ApartMemory::~ApartMemory() { munmap(all_, kAllBytes); }

void* ApartMemory::Allocate(std::size_t bytes) {
  bytes = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* memory = unused_;
  if (std::vector<std::byte*>& free = free_[bytes]; !free.empty()) {
    memory = free.back();
    free.pop_back();
  } else {
    if (bytes > static_cast<std::size_t>(all_ + kAllBytes - unused_)) throw std::bad_alloc();
    unused_ += bytes;
  }
  sizes_.emplace(memory, bytes);
  std::memset(memory, kNeverWritten, bytes);
  return memory;
}

void ApartMemory::Free(void* memory) noexcept {
  if (memory == nullptr) return;
  const auto found = sizes_.find(static_cast<std::byte*>(memory));
  std::memset(memory, kGivenBack, found->second);
  free_[found->second].push_back(found->first);
  sizes_.erase(found);
}

void ApartMemory::CheckRange(const void* begin, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(begin);
  const std::less<> before;
  if (bytes == 0 || before(first, all_) || !before(first, all_ + kAllBytes)) return;
  const auto behind = std::ranges::upper_bound(sizes_, first, before, [](const auto& s) { return s.first; });
  if (behind == sizes_.begin()) throw std::logic_error("a copy of memory that is not allocated");
  const auto& [memory, size] = *std::prev(behind);
  if (first + bytes > memory + size) throw std::logic_error("a copy over the end of an allocation");
}

}  // namespace slotwise::test
