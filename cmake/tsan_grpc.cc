// Tells ThreadSanitizer how gRPC orders its threads: by Abseil's mutexes, and by batches of operations. Who
// hears of a batch's end comes after who started it and who ended it.
//
// Both are made of atomics in libraries that are not instrumented, so the sanitizer does not see it by
// itself. Builds with it link this into every program, where these functions stand before the libraries' own:
// they call those, and say what comes after what. Nothing is hidden; what gRPC really orders counts as
// ordered. Readers' locks gRPC does not use.
#include <absl/base/options.h>
#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>
#include <string>

namespace {

// The library's own function; `name` is what the linker calls it.
template <class Function>
Function Own(const std::string& name) {
  void* function = dlsym(RTLD_NEXT, name.c_str());
  if (function == nullptr) std::abort();
  return reinterpret_cast<Function>(function);
}

#define SLOTWISE_TEXT(...) SLOTWISE_TEXT_OF(__VA_ARGS__)
#define SLOTWISE_TEXT_OF(...) #__VA_ARGS__

// Abseil's; its namespace has one inside that is named for the version.
template <class Function>
Function Abseil(const std::string& name) {
  const std::string version = SLOTWISE_TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  return Own<Function>("_ZN4absl" + std::to_string(version.size()) + version + name);
}

// Waiting unlocks the mutex and locks it again.
class Waiting {
 public:
  explicit Waiting(absl::Mutex* mutex) : mutex_(mutex) { __tsan_release(mutex); }
  ~Waiting() { __tsan_acquire(mutex_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  absl::Mutex* mutex_;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto lock = Abseil<void (*)(Mutex*)>("5Mutex4LockEv");
  lock(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static const auto try_lock = Abseil<bool (*)(Mutex*)>("5Mutex7TryLockEv");
  if (!try_lock(this)) return false;
  __tsan_acquire(this);
  return true;
}

void Mutex::Unlock() {
  static const auto unlock = Abseil<void (*)(Mutex*)>("5Mutex6UnlockEv");
  __tsan_release(this);
  unlock(this);
}

void CondVar::Wait(Mutex* mutex) {
  static const auto wait = Abseil<void (*)(CondVar*, Mutex*)>("7CondVar4WaitEPNS0_5MutexE");
  const Waiting waiting(mutex);
  wait(this, mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto wait =
      Abseil<bool (*)(CondVar*, Mutex*, Duration)>("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  const Waiting waiting(mutex);
  return wait(this, mutex, timeout);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto wait =
      Abseil<bool (*)(CondVar*, Mutex*, Time)>("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  const Waiting waiting(mutex);
  return wait(this, mutex, deadline);
}

ABSL_NAMESPACE_END
}  // namespace absl

// A batch is known by its tag: the object in gRPC's headers that it was filled from, and that hears of its
// end.
extern "C" {

// What ends it is internal to gRPC's library, and called by this name there. A Status goes by its address.
#define SLOTWISE_END \
  "_Z14grpc_cq_end_opP21grpc_completion_queuePvN4absl7debian36StatusEPFvS1_P18grpc_cq_completionES1_S6_b"
void EndBatch(grpc_completion_queue* queue, void* tag, void* status, void (*done)(void*, void*), void* arg,
              void* storage, bool internal) __asm__(SLOTWISE_END);

void EndBatch(grpc_completion_queue* queue, void* tag, void* status, void (*done)(void*, void*), void* arg,
              void* storage, bool internal) {
  static const auto end = Own<decltype(&EndBatch)>(SLOTWISE_END);
  __tsan_release(tag);
  end(queue, tag, status, done, arg, storage, internal);
}

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static const auto start = Own<decltype(&grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return start(call, ops, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static const auto next = Own<decltype(&grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline,
                                       void* reserved) {
  static const auto pluck = Own<decltype(&grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = pluck(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // extern "C"
