// KeepFreedMemory lets the process keep the memory of messages that were received, for the next ones.
//
// gRPC receives large messages into memory of malloc, and frees it soon. glibc gives freed memory of 128 KiB
// back to the system at once, which hands new memory out page by page: that was a quarter of the time of a
// lookup of 27 MB over loopback. glibc keeps more (64 MiB at the top of each heap) once a program has freed a
// block of nearly 32 MiB (mallopt(3), M_MMAP_THRESHOLD), as programs with large arrays do anyway.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_WIRE_FREED_MEMORY_H_
#define SLOTWISE_WIRE_FREED_MEMORY_H_

namespace slotwise {

// Frees such a block. Has no effect on other C libraries, nor where the process's own setting of those limits
// (mallopt, MALLOC_TRIM_THRESHOLD_) holds.
void KeepFreedMemory();

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_FREED_MEMORY_H_
