// The shadow: what a power failure would leave of a folder, noted in files beside it (crash_at.c).
//
//   SHADOW/content/<id>   a file's bytes as of its last sync
//   SHADOW/dirty/<id>     what changed since then: lines `W offset bytes` and `T size`
//   SHADOW/folders/<id>   a folder's names as of its last sync: lines `f|d id name`
//
// forgetful_files.py puts the folder back to that. An <id> is the inode's number and time of birth, so that
// it names one file, whatever its path. What changed is noted in files, so that another process's sync counts
// for what a killed one wrote.
// Thread-safety: any thread; but a file is changed and synced by one thread at a time.
#ifndef SLOTWISE_TESTS_FAULT_CRASH_SHADOW_H_
#define SLOTWISE_TESTS_FAULT_CRASH_SHADOW_H_

#include <limits.h>
#include <stdbool.h>

enum { kPath = PATH_MAX + 64 };  // size of a buffer for a path

// Ends the process with a message, because a test must not go on with a wrong shadow.
void CrashDie(const char* format, ...);

// Must be called once, first. NULL: there is no shadow.
void UseShadow(const char* folder);
bool HasShadow(void);

// Notes a change of an open file before it is made: a line of dirty/<id>.
void NoteChange(int fd, const char* format, ...);
// Notes that the current state of an open file or folder at `path` is on disk.
void NoteSync(int fd, const char* path);

#endif  // SLOTWISE_TESTS_FAULT_CRASH_SHADOW_H_
