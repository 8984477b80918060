// FileSystem: all that the journal and checkpoints ask of files. A server has the system's (SystemFiles); a
// simulator brings one that forgets, tears and reorders what was not synced.
//
// What is durable: a file's bytes after its Sync; a name (of a new, renamed or removed file) after SyncFolder
// of the folder that has it. Nothing else is.
// Paths are of the system, with '/'. Files hold bytes; offsets and sizes are in bytes.
// Thread-safety: a FileSystem, any thread; a file, one thread at a time.
// Errors: RESOURCE_EXHAUSTED: no space is left (or quota). NOT_FOUND: there is no such file or folder; a file
// is no folder, on the way to a name either, and a folder that is to be opened is no file. ALREADY_EXISTS.
// FAILED_PRECONDITION: what is to be opened or removed as a file is none: a FIFO, a device, a folder; or what
// is to be written is a symbolic link. No call waits for a FIFO's other end. UNAVAILABLE: any other error.
// Each names the operation, the path and the system's reason.
#ifndef SLOTWISE_SERVER_DURABILITY_FILE_SYSTEM_H_
#define SLOTWISE_SERVER_DURABILITY_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes, and syncs nothing
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;

  // Writes the pieces one behind the other from `offset` on; all of them, or an error, and then any part of
  // them may have been written.
  virtual Status WriteAt(std::uint64_t offset, std::span<const std::span<const std::byte>> pieces) = 0;

  // Takes space for bytes [0, size) now, so that writing them later does not fail for want of it, and makes
  // the file that long if it was shorter: bytes that were not written are 0.
  virtual Status Reserve(std::uint64_t size) = 0;

  // Makes the file `size` bytes long.
  virtual Status Truncate(std::uint64_t size) = 0;

  // Returns once all that was written, and the file's length, is on disk. After an error it is unknown what
  // is: the caller must not go on as if a later Sync that succeeds made it good.
  virtual Status Sync() = 0;

  // Begins to bring bytes [begin, end), which were written, to disk, so that a later Sync has less to wait
  // for. Makes nothing durable. An error is as one of Sync.
  virtual Status BeginSync(std::uint64_t /*begin*/, std::uint64_t /*end*/) { return Status(); }

  // Writes a piece of a large file, of which much follows and none is soon read: it may go to the
  // disk past the system's memory, and after the call has returned. So the piece stays in use until
  // kPiecesLater more calls of WriteLater, or one of WaitForPieces, have returned, and these tell of an
  // error. Writes of other parts may go on beside it.
  static constexpr std::size_t kPiecesLater = 3;
  virtual Status WriteLater(std::uint64_t offset, std::span<const std::byte> piece) {
    return WriteAt(offset, std::span(&piece, 1));
  }
  // Returns once no piece is in use any more; so does Sync.
  virtual Status WaitForPieces() { return Status(); }

  // Says that what was synced is not soon read: the system's memory need not keep it.
  virtual void DropFromMemory() {}

 protected:
  WritableFile() = default;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  virtual std::uint64_t size() const = 0;  // when it was opened
  // When its bytes were changed last, in seconds since 1970, as the file system says; nothing: it does not.
  virtual std::optional<std::uint64_t> changed_at() const { return std::nullopt; }
  // Fills `bytes` from `offset` on. UNAVAILABLE, naming the file, if the file ends before.
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const = 0;

  // Returns where, from `offset` on, the next byte lies that may not be 0; size() if all that follows is 0. A
  // file that is mostly holes is read so in no time.
  virtual std::uint64_t NextData(std::uint64_t offset) const { return offset; }

  // Says that bytes [begin, end) will be read soon: the system may begin to. `end` may lie behind the file's.
  virtual void ReadAhead(std::uint64_t /*begin*/, std::uint64_t /*end*/) const {}

  // Says that bytes [begin, end) are not soon read again: the system's memory need not keep them. `end`
  // may lie behind the file's.
  virtual void DropFromMemory(std::uint64_t /*begin*/, std::uint64_t /*end*/) const {}

 protected:
  ReadableFile() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  // Makes a new, empty file. ALREADY_EXISTS.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // Opens a file that is there to change it.
  virtual Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;

  // Gives a file or folder another name, in one step; a file of the new name goes.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file. NOT_FOUND.
  virtual Status Remove(const std::string& path) = 0;
  // Removes a folder and all that is in it. OK if there is none.
  virtual Status RemoveFolder(const std::string& path) = 0;
  // Makes a folder. OK if it is there.
  virtual Status MakeFolder(const std::string& path) = 0;
  // Returns the names in a folder, sorted, without "." and "..". NOT_FOUND.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // Returns once the folder's names are on disk.
  virtual Status SyncFolder(const std::string& path) = 0;

 protected:
  FileSystem() = default;
};

// The system's files.
FileSystem& SystemFiles();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_FILE_SYSTEM_H_
