#include "server/durability/open_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "server/durability/system_errors.h"

namespace slotwise {

Result<OpenedFile> OpenFile(const char* operation, const std::string& path, int flags, unsigned mode) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0;
  flags |= O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (writes ? O_NOFOLLOW : 0);
  OpenedFile file;
  file.number = Uninterrupted([&] { return ::open(path.c_str(), flags, mode); });
  if (file.number < 0 && errno == ELOOP && writes) {
    return FailedPrecondition("cannot " + std::string(operation) + " " + path +
                              ": it is a symbolic link, and none is followed to a file that is written");
  }
  if (file.number < 0) return SystemFailure(operation, path, errno);
  const int error = ::fstat(file.number, &file.facts) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(file.facts.st_mode)) return file;
  ::close(file.number);
  if (error != 0) return SystemFailure("look at", path, error);
  if (S_ISDIR(file.facts.st_mode)) return NotFound("cannot open " + path + ": it is a folder");
  return FailedPrecondition("cannot open " + path + ": it is no regular file");
}

}  // namespace slotwise
