#include "wire/freed_memory.h"

#include <cstddef>
#include <cstdlib>

namespace slotwise {

void KeepFreedMemory() {
  // Volatile, because the compiler may leave out an unused block. The block is never touched, so it
  // takes no memory.
  void* volatile block = std::malloc(std::size_t{31} << 20);
  std::free(block);
}

}  // namespace slotwise
