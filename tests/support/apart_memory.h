// The memory of an ApartDevice. Allocations lie directly behind each other where possible, like a GPU's.
//
// A copy must not cross the end of an allocation, even if the next one begins there, because CUDA refuses
// this. So code that merges copies of adjacent addresses fails here, too.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_APART_MEMORY_H_
#define SLOTWISE_TESTS_SUPPORT_APART_MEMORY_H_

#include <cstddef>
#include <map>
#include <vector>

namespace slotwise::test {

class ApartMemory {
 public:
  static constexpr int kNeverWritten = 0xA7;  // every byte of a new allocation
  static constexpr int kGivenBack = 0xDB;     // every byte of a freed allocation, until its reuse

  ApartMemory();
  ~ApartMemory();
  ApartMemory(const ApartMemory&) = delete;
  ApartMemory& operator=(const ApartMemory&) = delete;

  // Throws std::bad_alloc.
  void* Allocate(std::size_t bytes);
  void Free(void* memory) noexcept;

  // Throws std::logic_error if the bytes begin in this memory and are not within one allocation.
  void CheckRange(const void* begin, std::size_t bytes) const;

 private:
  std::byte* all_;
  std::byte* unused_;                                    // memory from here on was never allocated
  std::map<std::byte*, std::size_t> sizes_;              // sizes of the current allocations
  std::map<std::size_t, std::vector<std::byte*>> free_;  // free allocations, by size
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_APART_MEMORY_H_
