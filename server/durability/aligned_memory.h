// AlignedMemory: a buffer that the disk can write and read directly, past the page cache (O_DIRECT).
// Thread-safety: as a std::unique_ptr.
#ifndef SLOTWISE_SERVER_DURABILITY_ALIGNED_MEMORY_H_
#define SLOTWISE_SERVER_DURABILITY_ALIGNED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace slotwise {

// In a direct transfer the file offset, the size and the address are multiples of this number of bytes.
inline constexpr std::size_t kDiskAlign = 4096;

constexpr bool IsDiskAligned(std::uint64_t number) { return number % kDiskAlign == 0; }
inline bool IsDiskAligned(const void* memory) {
  return IsDiskAligned(reinterpret_cast<std::uintptr_t>(memory));
}

class AlignedMemory {
 public:
  AlignedMemory() = default;
  // Throws std::bad_alloc.
  explicit AlignedMemory(std::size_t size)
      : bytes_(static_cast<std::byte*>(::operator new(size, std::align_val_t{kDiskAlign}))), size_(size) {}

  std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> First(std::size_t n) const { return {data(), n}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete(memory, std::align_val_t{kDiskAlign});
    }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t size_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_ALIGNED_MEMORY_H_
