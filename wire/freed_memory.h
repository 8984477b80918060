// KeepFreedMemory makes glibc keep the freed memory of received messages for the next ones.
//
// gRPC receives large messages into malloc's memory, and frees it soon. glibc returns a freed block of 128
// KiB or more to the system at once, and the system hands out new memory page by page: that took a quarter of
// the time of a lookup of 27 MB over loopback. glibc keeps more (64 MiB at the top of each heap) once a
// program has freed a block of nearly 32 MiB (mallopt(3), M_MMAP_THRESHOLD), as programs with large arrays do
// anyway.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_WIRE_FREED_MEMORY_H_
#define SLOTWISE_WIRE_FREED_MEMORY_H_

namespace slotwise {

// Frees such a block. Has no effect with other C libraries, or if the process has set those limits itself
// (mallopt, MALLOC_TRIM_THRESHOLD_).
void KeepFreedMemory();

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_FREED_MEMORY_H_
