// The memory of an ApartDevice: allocations lie directly behind each other wherever they can, as a GPU's do.
//
// A copy may not go over the end of an allocation, even where the next one begins there: CUDA refuses it. So
// code that puts two copies together because their addresses follow each other is told here too.
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
  static constexpr int kGivenBack = 0xDB;     // every byte of a freed one, until it is used again

  ApartMemory();
  ~ApartMemory();
  ApartMemory(const ApartMemory&) = delete;
  ApartMemory& operator=(const ApartMemory&) = delete;

  // Throws std::bad_alloc.
  void* Allocate(std::size_t bytes);
  void Free(void* memory) noexcept;

  // Throws std::logic_error if the bytes begin in this memory and are not all of one allocation.
  void CheckRange(const void* begin, std::size_t bytes) const;

 private:
  std::byte* all_;
  std::byte* unused_;                                    // all that lies behind was never given out
  std::map<std::byte*, std::size_t> sizes_;              // bytes of the allocations that there are
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by size
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_APART_MEMORY_H_
