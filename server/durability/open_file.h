// OpenFile opens the files in a data folder. All of the server's files that are written are opened by it.
//
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_

#include <sys/stat.h>

#include <string>

#include "slotwise/status.h"

namespace slotwise {

// Opens a file as open(2) does with `flags`, and returns its descriptor, which the caller owns, and what
// fstat says. Only regular files are opened, and the call never waits for a FIFO's other end. A file that is
// opened to be written, or made, is the one of that name: a symbolic link in its place is not followed, so
// no user can have another file overwritten by putting a link into the folder. Links on the way to the name
// are followed.
// REQUIRES: `flags` do not have O_TRUNC, which would empty the file before it is looked at.
// FAILED_PRECONDITION: the path is a FIFO or a device, or is a link and the file would be written. NOT_FOUND:
// the path is a folder, and the file would only be read. Others are SystemFailure's, for a folder that would
// be written, too.
// `operation`: the verb of the message, as in "cannot OPERATION PATH".
struct OpenedFile {
  int number = -1;
  struct stat facts {};
};
Result<OpenedFile> OpenFile(const char* operation, const std::string& path, int flags, unsigned mode = 0666);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_
