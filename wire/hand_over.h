// Tells ThreadSanitizer where data that one of our threads wrote passes through gRPC to another thread.
//
// gRPC orders its threads by means that the sanitizer does not see. In builds with the sanitizer,
// cmake/tsan_grpc.cc and server/rpc/tsan_calls.cc report most of that order: OnDone comes after Finish,
// OnWriteDone after StartWrite. They cannot report orders that only gRPC's library counts: the cancellation
// of a call, or the last use of a slice. For those, our code calls HandOver(x) before it passes something to
// gRPC, and TakeOver(x) where gRPC calls our code because of it. HandOver orders only TakeOver calls with the
// same address, so the sanitizer still reports races between two calls, and races of a thread that bypasses
// gRPC.
//
// In other builds both functions do nothing. Thread-safety: safe from any thread.
#ifndef SLOTWISE_WIRE_HAND_OVER_H_
#define SLOTWISE_WIRE_HAND_OVER_H_

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

#endif  // SLOTWISE_WIRE_HAND_OVER_H_
