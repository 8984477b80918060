// This header is how files in a folder of the user's are opened to be written: no other place does.
//
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_

#include <sys/stat.h>

#include <string>

#include "slotwise/status.h"

namespace slotwise {

// Opens a file as open(2) does with `flags`, and returns its descriptor, which the caller owns, and what
// fstat says. What is no regular file is refused, and nobody waits for a FIFO's other end. A file that is
// opened to be written, or made, is the one of that name: a symbolic link in its place is not followed, so
// that whoever can put one into the folder cannot have another file overwritten. Links on the way to the name
// are.
// REQUIRES: `flags` do not have O_TRUNC, which would empty the file before it is looked at.
// FAILED_PRECONDITION: it is a link, a FIFO, a device. NOT_FOUND: it is a folder. Others are SystemFailure's.
// `operation`: what to say of a failure, as in "cannot OPERATION PATH".
struct OpenedFile {
  int number = -1;
  struct stat facts {};
};
Result<OpenedFile> OpenFile(const char* operation, const std::string& path, int flags, unsigned mode = 0666);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_
