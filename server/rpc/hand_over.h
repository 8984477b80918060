// Tells ThreadSanitizer where what one of our threads wrote passes through gRPC to another.
//
// gRPC orders its threads by means that the sanitizer does not see. In builds with it, cmake/tsan_grpc.cc and
// tsan_calls.cc tell of most: OnDone comes after Finish, OnWriteDone after StartWrite. They cannot tell of what is counted
// in gRPC's library alone: a call that is cancelled, a slice that nobody reads any more. There it is told by name: before
// something goes to gRPC, HandOver(x); where gRPC calls us for it, TakeOver(x). Only for `x` of the same address is
// anything ordered, so races between two calls, or of a thread that goes around gRPC, are reported as ever.
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
