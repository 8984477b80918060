// crash_at: a library for LD_PRELOAD that breaks a server's files, or denies it threads, for tests. It stands between
// the server and the system's calls on files below one folder, and leaves all other files alone. The environment says
// what it does:
//
//   SLOTWISE_CRASH_BELOW=FOLDER   the folder, an absolute path without links. Without it the library does nothing.
//   SLOTWISE_CRASH_RANK=R         only rank R crashes or fails (mpirun's OMPI_COMM_WORLD_RANK). Default: every rank
//   SLOTWISE_CRASH_AT=WHEN:CALL:N[:MICROSECONDS]
//                                 kills the process (SIGKILL) at its N-th CALL, counted from 1. WHEN is `before`,
//                                 `after`, or `amid`, for a pwritev or pwrite that writes half of its bytes. CALL is
//                                 the name of a function below. With MICROSECONDS the kill comes so much later.
//   SLOTWISE_CRASH_PATH=TEXT      counts only calls on paths that contain it. A rename has the new path
//   SLOTWISE_FAIL_AT=CALL:N:ERRNO
//                                 the N-th CALL and all later ones fail with that number, and change nothing
//   SLOTWISE_FULL_WHILE=FILE      as long as FILE exists, calls that would take space fail with ENOSPC
//   SLOTWISE_NO_THREADS_WHILE=FILE
//                                 as long as FILE exists, the system gives the process no more threads (EAGAIN), but
//                                 for gRPC's library, which loses calls then
//   SLOTWISE_FORGET=SHADOW        notes in the folder SHADOW what a power failure would leave (crash_shadow.h), and
//                                 syncs nothing beside that
//
// Only the functions below are seen. A server that writes by another call (write, mmap, io_uring) has to have that
// added here: write() and writev() below the folder end the process, so that it is not forgotten.
// Thread-safety: any thread; but a file is changed and synced by one thread at a time, as WritableFile asks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "crash_shadow.h"

enum Call { kPwrite, kPwritev, kFtruncate, kFallocate, kFsync, kFdatasync, kRename, kUnlink, kMkdir, kCalls };
static const char* const kNames[kCalls] = {"pwrite",    "pwritev", "ftruncate", "fallocate", "fsync",
                                           "fdatasync", "rename",  "unlink",    "mkdir"};
enum When { kNever, kBefore, kAmid, kAfter };

// What the environment says.
static struct {
  const char* below;
  const char* path;  // NULL: all paths
  const char* full_while;
  const char* no_threads_while;
  enum When when;
  enum Call crash_call;
  unsigned long crash_number;
  long crash_later;  // microseconds
  enum Call fail_call;
  unsigned long fail_number;  // 0: no call fails
  int fail_error;
} plan;
static pthread_once_t plan_is_read = PTHREAD_ONCE_INIT;
static atomic_ulong counts[kCalls];

void CrashDie(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "crash_at: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  _exit(99);
}

static enum Call CallOf(const char* name, const char* all) {
  for (int call = 0; call < kCalls; ++call) {
    if (strcmp(kNames[call], name) == 0) return (enum Call)call;
  }
  CrashDie("%s names no call that is known here", all);
  return kCalls;
}

static void ReadPlan(void) {
  plan.below = getenv("SLOTWISE_CRASH_BELOW");
  plan.path = getenv("SLOTWISE_CRASH_PATH");
  plan.full_while = getenv("SLOTWISE_FULL_WHILE");
  UseShadow(getenv("SLOTWISE_FORGET"));
  const char* const only = getenv("SLOTWISE_CRASH_RANK");
  const char* const rank = getenv("OMPI_COMM_WORLD_RANK");
  if (only != NULL && strcmp(only, rank != NULL ? rank : "0") != 0) return;
  plan.no_threads_while = getenv("SLOTWISE_NO_THREADS_WHILE");
  char when[16];
  char call[16];
  const char* text = getenv("SLOTWISE_CRASH_AT");
  if (text != NULL) {
    if (sscanf(text, "%15[a-z]:%15[a-z]:%lu:%ld", when, call, &plan.crash_number, &plan.crash_later) < 3)
      CrashDie("SLOTWISE_CRASH_AT is %s, not WHEN:CALL:N[:MICROSECONDS]", text);
    plan.crash_call = CallOf(call, text);
    plan.when = strcmp(when, "before") == 0  ? kBefore
                : strcmp(when, "amid") == 0  ? kAmid
                : strcmp(when, "after") == 0 ? kAfter
                                             : kNever;
    if (plan.when == kNever) CrashDie("SLOTWISE_CRASH_AT is %s: not before, amid or after", text);
    if (plan.when == kAmid && plan.crash_call != kPwrite && plan.crash_call != kPwritev)
      CrashDie("SLOTWISE_CRASH_AT is %s: only a write has a middle", text);
  }
  text = getenv("SLOTWISE_FAIL_AT");
  if (text != NULL) {
    if (sscanf(text, "%15[a-z]:%lu:%d", call, &plan.fail_number, &plan.fail_error) != 3)
      CrashDie("SLOTWISE_FAIL_AT is %s, not CALL:N:ERRNO", text);
    plan.fail_call = CallOf(call, text);
  }
}

// The next library's function of that name.
#define NEXT(name)               \
  static __typeof__(&name) next; \
  if (next == NULL) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  NEXT(pthread_create);
  pthread_once(&plan_is_read, ReadPlan);
  Dl_info caller;
  const bool grpcs = dladdr(__builtin_return_address(0), &caller) != 0 && strstr(caller.dli_fname, "libgpr") != NULL;
  if (!grpcs && plan.no_threads_while != NULL && access(plan.no_threads_while, F_OK) == 0) return EAGAIN;
  return next(thread, attributes, body, argument);
}

static bool IsBelow(const char* path) {
  pthread_once(&plan_is_read, ReadPlan);
  if (plan.below == NULL) return false;
  const size_t length = strlen(plan.below);
  return strncmp(path, plan.below, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

// Returns whether an open file or folder is below the folder, and its path.
static bool IsOpenBelow(int fd, char path[kPath]) {
  pthread_once(&plan_is_read, ReadPlan);
  if (plan.below == NULL) return false;
  struct stat facts;
  if (fstat(fd, &facts) != 0 || (!S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode))) return false;
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, kPath - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return IsBelow(path);
}

static bool IsPathBelow(const char* path) {
  if (path[0] != '/') {  // the server was given a relative path
    char absolute[kPath];
    if (getcwd(absolute, PATH_MAX) == NULL || strlen(absolute) + strlen(path) + 2 > sizeof(absolute))
      return false;
    strcat(strcat(absolute, "/"), path);
    return IsBelow(absolute);
  }
  return IsBelow(path);
}

static void Kill(void) {
  kill(getpid(), SIGKILL);
  pause();
}

static void* KillLater(void* nothing) {
  const struct timespec time = {plan.crash_later / 1000000, plan.crash_later % 1000000 * 1000};
  nanosleep(&time, NULL);
  Kill();
  return nothing;
}

static void KillNowOrLater(void) {
  if (plan.crash_later <= 0) Kill();
  pthread_t thread;
  pthread_create(&thread, NULL, KillLater, NULL);
}

// A call has begun. Returns its number, or 0 if it does not count, and kills the process if it is to die before it.
static unsigned long Begin(enum Call call, const char* path) {
  if (plan.path != NULL && strstr(path, plan.path) == NULL) return 0;
  const unsigned long number = atomic_fetch_add(&counts[call], 1) + 1;
  if (plan.when == kBefore && plan.crash_call == call && plan.crash_number == number) KillNowOrLater();
  return number;
}

// Returns whether a call is to fail, and sets errno.
static bool Fails(enum Call call, unsigned long number) {
  if (plan.fail_number == 0 || plan.fail_call != call || number < plan.fail_number) return false;
  errno = plan.fail_error;
  return true;
}

static bool IsFull(void) {
  if (plan.full_while == NULL || access(plan.full_while, F_OK) != 0) return false;
  errno = ENOSPC;
  return true;
}

static void End(enum Call call, unsigned long number) {
  if (plan.when == kAfter && plan.crash_call == call && plan.crash_number == number) KillNowOrLater();
}

static bool DiesAmid(enum Call call, unsigned long number) {
  return plan.when == kAmid && plan.crash_call == call && plan.crash_number == number;
}

static int Sync(enum Call call, int fd, int (*next)(int)) {
  char path[kPath];
  if (!IsOpenBelow(fd, path)) return next(fd);
  const unsigned long number = Begin(call, path);
  if (Fails(call, number)) return -1;
  const int result = HasShadow() ? 0 : next(fd);  // the shadow is the disk
  if (HasShadow()) {
    NoteSync(fd, path);
  }
  End(call, number);
  return result;
}

// --- the calls

static bool GrowsFile(int fd, off_t end) {
  struct stat facts;
  return fstat(fd, &facts) == 0 && end > facts.st_size;
}

static ssize_t Write(enum Call call, int fd, const struct iovec* pieces, int count, off_t offset) {
  NEXT(pwritev);
  char path[kPath];
  if (!IsOpenBelow(fd, path)) return next(fd, pieces, count, offset);
  const unsigned long number = Begin(call, path);
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  if (Fails(call, number) || (GrowsFile(fd, offset + (off_t)bytes) && IsFull())) return -1;
  NoteChange(fd, "W %lld %lld\n", (long long)offset, (long long)bytes);
  if (DiesAmid(call, number)) {
    size_t left = bytes / 2;
    for (int i = 0; i < count && left > 0; ++i) {
      struct iovec piece = pieces[i];
      if (piece.iov_len > left) piece.iov_len = left;
      if (next(fd, &piece, 1, offset) < 0) CrashDie("cannot write half: %m");
      offset += (off_t)piece.iov_len;
      left -= piece.iov_len;
    }
    Kill();
  }
  const ssize_t result = next(fd, pieces, count, offset);
  End(call, number);
  return result;
}

ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t offset) {
  return Write(kPwritev, fd, pieces, count, offset);
}
ssize_t pwritev64(int fd, const struct iovec* pieces, int count, off64_t offset) {
  return Write(kPwritev, fd, pieces, count, offset);
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  const struct iovec piece = {(void*)(uintptr_t)bytes, size};
  return Write(kPwrite, fd, &piece, 1, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return pwrite(fd, bytes, size, offset);
}

static void RefuseUnknown(const char* call, int fd) {
  char path[kPath];
  if (IsOpenBelow(fd, path)) CrashDie("%s() to %s: this library has to learn that call first", call, path);
}
ssize_t write(int fd, const void* bytes, size_t size) {
  NEXT(write);
  RefuseUnknown("write", fd);
  return next(fd, bytes, size);
}
ssize_t writev(int fd, const struct iovec* pieces, int count) {
  NEXT(writev);
  RefuseUnknown("writev", fd);
  return next(fd, pieces, count);
}

int ftruncate(int fd, off_t size) {
  NEXT(ftruncate);
  char path[kPath];
  if (!IsOpenBelow(fd, path)) return next(fd, size);
  const unsigned long number = Begin(kFtruncate, path);
  if (Fails(kFtruncate, number)) return -1;
  NoteChange(fd, "T %lld\n", (long long)size);
  const int result = next(fd, size);
  End(kFtruncate, number);
  return result;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
  NEXT(fallocate);
  char path[kPath];
  if (!IsOpenBelow(fd, path)) return next(fd, mode, offset, size);
  const unsigned long number = Begin(kFallocate, path);
  if (mode != 0) CrashDie("fallocate with mode %d: this library has to learn that first", mode);
  if (Fails(kFallocate, number) || IsFull()) return -1;
  const int result = next(fd, mode, offset, size);  // the bytes are 0, as those of a file made longer
  End(kFallocate, number);
  return result;
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return fallocate(fd, mode, offset, size); }

int fsync(int fd) {
  NEXT(fsync);
  return Sync(kFsync, fd, next);
}
int fdatasync(int fd) {
  NEXT(fdatasync);
  return Sync(kFdatasync, fd, next);
}

int rename(const char* from, const char* to) {
  NEXT(rename);
  if (!IsPathBelow(to)) return next(from, to);
  const unsigned long number = Begin(kRename, to);
  if (Fails(kRename, number)) return -1;
  const int result = next(from, to);
  End(kRename, number);
  return result;
}
int unlink(const char* path) {
  NEXT(unlink);
  if (!IsPathBelow(path)) return next(path);
  const unsigned long number = Begin(kUnlink, path);
  if (Fails(kUnlink, number)) return -1;
  const int result = next(path);
  End(kUnlink, number);
  return result;
}
int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  if (!IsPathBelow(path)) return next(path, mode);
  const unsigned long number = Begin(kMkdir, path);
  if (Fails(kMkdir, number)) return -1;
  const int result = next(path, mode);
  End(kMkdir, number);
  return result;
}
