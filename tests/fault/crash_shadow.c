#define _GNU_SOURCE
#include "crash_shadow.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char* shadow;

void UseShadow(const char* folder) { shadow = folder; }
bool HasShadow(void) { return shadow != NULL; }

// Writes SHADOW/<kind>/<id> of a file or folder into `path`.
static void ShadowPath(const char* kind, int folder, const char* name, char type[2], char path[kPath]) {
  struct statx facts;
  const int flags = name[0] == '\0' ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
  if (statx(folder, name, flags, STATX_INO | STATX_BTIME | STATX_TYPE, &facts) != 0) CrashDie("statx: %m");
  if ((facts.stx_mask & STATX_BTIME) == 0)
    CrashDie("SLOTWISE_FORGET needs a file system that knows a file's time of birth");
  type[0] = S_ISDIR(facts.stx_mode) ? 'd' : 'f';
  type[1] = '\0';
  snprintf(path, kPath, "%s/%s/%llu-%lld.%09u", shadow, kind, (unsigned long long)facts.stx_ino,
           (long long)facts.stx_btime.tv_sec, facts.stx_btime.tv_nsec);
}

void NoteChange(int fd, const char* format, ...) {
  if (shadow == NULL) return;
  char type[2];
  char path[kPath];
  ShadowPath("dirty", fd, "", type, path);
  char line[64];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  const int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log < 0 || write(log, line, (size_t)length) != length) CrashDie("cannot note a change in %s: %m", path);
  close(log);
}

static void CopyBytes(int from, int to, off_t offset, off_t bytes) {
  static const size_t kBlock = 1 << 20;
  char* const block = malloc(kBlock);
  while (bytes > 0) {
    const ssize_t got = pread(from, block, bytes < (off_t)kBlock ? (size_t)bytes : kBlock, offset);
    if (got < 0) CrashDie("cannot read what is to be synced: %m");
    if (got == 0) break;  // the file was made shorter since
    if (pwrite(to, block, (size_t)got, offset) != got) CrashDie("cannot write a shadow: %m");
    offset += got;
    bytes -= got;
  }
  free(block);
}

static void ShadowFile(int fd) {
  char type[2];
  char dirty[kPath];
  char content[kPath];
  char at[64];
  ShadowPath("dirty", fd, "", type, dirty);
  ShadowPath("content", fd, "", type, content);
  snprintf(at, sizeof(at), "/proc/self/fd/%d", fd);  // the file may be open for writing alone
  const int from = open(at, O_RDONLY | O_CLOEXEC);
  const int to = open(content, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  struct stat facts;
  if (from < 0 || to < 0 || fstat(fd, &facts) != 0) CrashDie("cannot open the shadow %s: %m", content);
  FILE* const log = fopen(dirty, "re");
  char what;
  long long first;
  long long second;
  char line[64];
  while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
    const int fields = sscanf(line, "%c %lld %lld", &what, &first, &second);
    if (fields == 3 && what == 'W') {
      CopyBytes(from, to, first, second);
    } else if (fields != 2 || what != 'T' || ftruncate(to, first) != 0) {
      CrashDie("cannot follow %s: %s", dirty, line);
    }
  }
  if (ftruncate(to, facts.st_size) != 0) CrashDie("cannot set the length of %s: %m", content);
  if (log != NULL) fclose(log);
  close(from);
  close(to);
  unlink(dirty);
}

// Ranks sync folders of theirs at the same time: the last list that is written has to be the newest.
static int LockFolders(void) {
  char path[kPath];
  snprintf(path, sizeof(path), "%s/folders", shadow);
  const int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) CrashDie("cannot lock %s: %m", path);
  return lock;
}

static void ShadowFolder(int fd, const char* path) {
  char type[2];
  char names[kPath];
  char fresh[kPath + 32];
  char entry_path[kPath];
  ShadowPath("folders", fd, "", type, names);
  snprintf(fresh, sizeof(fresh), "%s.%d.%lu", names, getpid(), (unsigned long)pthread_self());
  const int lock = LockFolders();
  FILE* const list = fopen(fresh, "we");
  DIR* const folder = opendir(path);
  if (list == NULL || folder == NULL) CrashDie("cannot note the names of %s: %m", path);
  const struct dirent* entry;
  while ((entry = readdir(folder)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    // Another rank may remove it meanwhile.
    if (faccessat(dirfd(folder), entry->d_name, F_OK, AT_SYMLINK_NOFOLLOW) != 0) continue;
    ShadowPath("folders", dirfd(folder), entry->d_name, type, entry_path);
    fprintf(list, "%s %s %s\n", type, strrchr(entry_path, '/') + 1, entry->d_name);
  }
  closedir(folder);
  if (fclose(list) != 0 || rename(fresh, names) != 0) CrashDie("cannot write %s: %m", names);
  close(lock);
}

void NoteSync(int fd, const char* path) {
  struct stat facts;
  if (fstat(fd, &facts) != 0) CrashDie("fstat: %m");
  S_ISDIR(facts.st_mode) ? ShadowFolder(fd, path) : ShadowFile(fd);
}
