// Tells ThreadSanitizer about the reference count of a gRPC call. The thread that counts down to 0, and then
// deletes the call, comes after all threads that counted before. Some of the counting happens in gRPC's
// library, which is not instrumented. Builds with the sanitizer link this file into every program that has a
// server of Slotwise; its ScheduleOnDone then replaces gRPC's own.
#include <dlfcn.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdlib>

namespace {

std::atomic_int& Count(grpc::internal::ServerCallbackCall& call);

// An explicit instantiation may name a private member.
template <std::atomic_int grpc::internal::ServerCallbackCall::*kCount>
struct CountOf {
  friend std::atomic_int& Count(grpc::internal::ServerCallbackCall& call) { return call.*kCount; }
};
template struct CountOf<&grpc::internal::ServerCallbackCall::callbacks_outstanding_>;

}  // namespace

namespace grpc::internal {

void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  using Function = void (*)(ServerCallbackCall*, bool);
  static const auto schedule =
      reinterpret_cast<Function>(dlsym(RTLD_NEXT, "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb"));
  if (schedule == nullptr) std::abort();
  __tsan_acquire(&Count(*this));
  schedule(this, inline_ondone);
}

}  // namespace grpc::internal
