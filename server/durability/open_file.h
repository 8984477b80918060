// OpenFile opens the files in a data folder; all files that the server writes are opened by it.
//
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_

#include <sys/stat.h>

#include <string>

#include "slotwise/status.h"

namespace slotwise {

// Opens a file as open(2) does with `flags`. Returns the descriptor, which the caller owns, and the result of
// fstat. Opens regular files only, and never waits for a FIFO's other end. If the file is opened to be
// written or made, a symbolic link as the path's last component is not followed, so a link in the folder
// cannot make the server overwrite another file. Links in earlier components are followed. `operation` is the
// verb of the message, as in "cannot OPERATION PATH".
// REQUIRES: `flags` lack O_TRUNC, which would empty the file before it is checked.
// FAILED_PRECONDITION: the path is a FIFO or a device, or is a link and the file would be written. NOT_FOUND:
// the path is a folder, and the file would only be read. All other errors are SystemFailure's, also for a
// folder that would be written.
struct OpenedFile {
  int number = -1;
  struct stat facts {};
};
Result<OpenedFile> OpenFile(const char* operation, const std::string& path, int flags, unsigned mode = 0666);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_OPEN_FILE_H_
