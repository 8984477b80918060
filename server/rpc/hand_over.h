// Tells ThreadSanitizer where what one of our threads wrote passes through gRPC to another.
//
// gRPC orders its threads with Abseil's mutexes and with atomics, in libraries that are not instrumented. So the sanitizer
// sees a reactor that is answered by the engine's thread and then deleted by one of gRPC's, and not why that is in order:
// that gRPC calls OnDone after Finish, OnWriteDone after StartWrite, and so on. It is told so by name: before anything goes
// to gRPC, HandOver(x); where gRPC calls us for it, TakeOver(x). Only for `x` of the same address is anything ordered, so
// races between two calls, or of a thread that goes around gRPC, are reported as ever.
//
// In other builds both do nothing. Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_HAND_OVER_H_
#define SLOTWISE_SERVER_RPC_HAND_OVER_H_

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace slotwise {

#ifdef __SANITIZE_THREAD__
inline void HandOver(void* what) { __tsan_release(what); }
inline void TakeOver(void* what) { __tsan_acquire(what); }
#else
inline void HandOver(void* /*what*/) {}
inline void TakeOver(void* /*what*/) {}
#endif

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_HAND_OVER_H_
