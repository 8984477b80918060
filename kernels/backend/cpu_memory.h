// The CPU backend's host memory is scratch that is reused, and arrays that grow without moving.
#ifndef SLOTWISE_KERNELS_BACKEND_CPU_MEMORY_H_
#define SLOTWISE_KERNELS_BACKEND_CPU_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "slotwise/sizing.h"

namespace slotwise {

struct CpuQueue;

inline constexpr std::size_t kCacheLine = 64;

// Asks for large pages behind [memory, memory + bytes), where whole ones fit: memory is read at random here,
// and with small pages most of such a read's time goes into finding the page. Without large pages everything
// still works.
void AdviseLargePages(void* memory, std::size_t bytes) noexcept;

// A large page; address ranges are committed in pieces of it.
inline constexpr std::size_t kLargePage = sizing::kPieceBytes;

// REQUIRES: bytes > 0. Throws std::bad_alloc.
inline void* AllocateAligned(std::size_t bytes, std::size_t alignment = kCacheLine) {
  void* memory = ::operator new(bytes, std::align_val_t{alignment});
  AdviseLargePages(memory, bytes);
  return memory;
}
// REQUIRES: `memory` was allocated with `alignment`.
inline void FreeAligned(void* memory, std::size_t alignment = kCacheLine) noexcept {
  ::operator delete(memory, std::align_val_t{alignment});
}

// Returns memory that goes back to the system when it is freed: the heap keeps a freed block as long as a
// block behind it is in use. Memory no smaller than a large page begins with one.
// REQUIRES: bytes > 0. Throws std::bad_alloc.
void* MapMemory(std::size_t bytes);
// REQUIRES: `memory` was mapped with `bytes`.
void UnmapMemory(void* memory, std::size_t bytes) noexcept;

// Returns how many bytes of the host's memory tables may still take: the memory that is available, or left of
// this process's share, less the memory that tables have or that is kept from them and that was not touched
// yet. `root` is that of ReadHostMemory.
std::size_t HostMemoryForTables(const std::string& root = "");

// Limits this process to an even share of the memory that is available now, as one of `processes` of this
// host that do the same. Of the share, a sixteenth of the host's memory, divided likewise, is kept from
// tables. No process knows what the others have and have not touched yet, but the shares together are no more
// than there is. The share of a single process is all memory. REQUIRES: processes > 0; this process has no
// tables. Thread-safety: not while another thread makes tables.
void ShareHostMemory(std::size_t processes, const std::string& root = "");

// From now on keeps `bytes` of this process's memory from tables, for requests, batches, and all else that
// the process takes and has taken; and `bytes_a_row` beside each row, for lists of keys and rows.
// Thread-safety: not while another thread makes tables.
void KeepFromTables(std::size_t bytes, std::size_t bytes_a_row);
// Returns the bytes that are kept beside each row; 0 before KeepFromTables.
std::size_t KeptBesideARow();

// Counts memory that a table has beside its address ranges.
class TableBytes {
 public:
  TableBytes() = default;
  ~TableBytes() { Set(0); }
  TableBytes(const TableBytes&) = delete;
  TableBytes& operator=(const TableBytes&) = delete;

  void Set(std::size_t bytes);

 private:
  std::size_t bytes_ = 0;
};

template <class T>
class CpuScratch {
 public:
  T* Reserve(CpuQueue& /*queue*/, std::size_t n) {
    if (n > size_) {
      const std::size_t size = sizing::ScratchAhead(n, size_);
      data_.reset();
      size_ = 0;
      const std::size_t bytes = size * sizeof(T);
      data_ = {static_cast<T*>(bytes < kLeastMapped ? AllocateAligned(bytes) : MapMemory(bytes)),
               Free{bytes}};
      size_ = size;
    }
    return data_.get();
  }
  T* data() { return data_.get(); }
  // Returns how many elements there is memory for.
  std::size_t size() const { return size_; }

 private:
  // Smaller blocks are not mapped: the system limits a process's mappings, and a budget the scratch.
  static constexpr std::size_t kLeastMapped = std::size_t{128} << 10;

  struct Free {
    std::size_t bytes = 0;
    void operator()(T* memory) const {
      bytes < kLeastMapped ? FreeAligned(memory) : UnmapMemory(memory, bytes);
    }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

// Has address space for `bytes` bytes, or all that the host has if that is less; a growing front part is
// memory. Pages that were never touched cost nothing, so growing early is cheap, and nothing moves as the
// front part grows.
class AddressRange {
 public:
  // All ranges of a process together have at most this much, half of what x86-64 gives a process, so that
  // there is always address space for everything else.
  static constexpr std::size_t kMostAddresses = std::size_t{1} << 46;

  AddressRange() = default;
  // Throws std::bad_alloc if the address space cannot be had.
  explicit AddressRange(std::size_t bytes);
  ~AddressRange();
  AddressRange(AddressRange&& other) noexcept { Swap(other); }
  AddressRange& operator=(AddressRange&& other) noexcept {
    Swap(other);
    return *this;
  }

  // Makes the first `bytes` bytes memory, zeroed where new. Throws std::bad_alloc, and then nothing has
  // changed.
  void Commit(std::size_t bytes);
  // Has address space for `bytes` bytes or more, as if it had been made with so many. The memory keeps its
  // contents, but data() may change: its pages are moved, and not copied where the system can move them.
  // Throws std::bad_alloc, and then nothing has changed.
  void Extend(std::size_t bytes);
  void* data() const { return data_; }
  std::size_t committed() const { return committed_; }

 private:
  void Swap(AddressRange& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(reserved_, other.reserved_);
    std::swap(committed_, other.committed_);
  }

  void* data_ = nullptr;
  std::size_t reserved_ = 0;
  std::size_t committed_ = 0;
};

template <class T>
class CpuGrowing {
 public:
  CpuGrowing() = default;
  CpuGrowing(CpuQueue& /*queue*/, std::size_t limit) : range_(limit * sizeof(T)) {}

  // Pages become memory only when they are written.
  static std::size_t Ahead(std::size_t n) { return sizing::AheadOnCpu(n); }

  void Grow(std::size_t n) { range_.Commit(n * sizeof(T)); }
  void Extend(CpuQueue& /*queue*/, std::size_t limit) { range_.Extend(limit * sizeof(T)); }
  T* data() const { return static_cast<T*>(range_.data()); }
  std::size_t size() const { return range_.committed() / sizeof(T); }

 private:
  AddressRange range_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CPU_MEMORY_H_
