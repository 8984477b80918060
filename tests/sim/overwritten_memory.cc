// Every delete overwrites its memory and every new fills it, so that a use of freed or unwritten memory shows
// as wrong bytes. The sanitizers have better means, so their builds keep their own.
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0xA7, bytes);
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  std::memset(memory, 0xDB, malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, std::size_t /*bytes*/) noexcept { operator delete(memory); }

#endif
