// FileSystem: the file operations of journal and checkpoints. A server uses the system's files (SystemFiles).
// A simulator has its own, which forget, tear and reorder bytes that were not synced.
//
// A file's bytes are durable after the file's Sync. A name of a new, renamed or removed file is durable after
// SyncFolder of its folder. Nothing else is durable.
// Paths are the system's, with '/'. Offsets and sizes are in bytes.
// Thread-safety: a FileSystem, any thread; a file, one thread at a time.
// Errors: RESOURCE_EXHAUSTED: no space or quota is left. NOT_FOUND: there is no such file or folder; a path
// through a file counts as one, and so does a folder that is opened to read. ALREADY_EXISTS.
// FAILED_PRECONDITION: the path is a FIFO or a device, a folder to write or to remove as a file, or a
// symbolic link to write. No call waits for a FIFO's other end. UNAVAILABLE: any other error. Each message
// names the operation, the path and the system's reason.
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
  virtual ~WritableFile() = default;  // closes the file without a sync
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;

  // Writes the pieces one behind the other from `offset` on. After an error any part of them may be written.
  virtual Status WriteAt(std::uint64_t offset, std::span<const std::span<const std::byte>> pieces) = 0;

  // Takes space for bytes [0, size) now, so that a later write cannot fail for want of space. A shorter file
  // gets `size` bytes; bytes that were not written are 0.
  virtual Status Reserve(std::uint64_t size) = 0;

  // Makes the file `size` bytes long.
  virtual Status Truncate(std::uint64_t size) = 0;

  // Returns once all written bytes and the file's length are on disk. After an error it is unknown which
  // bytes are: a later Sync that succeeds does not make them durable, so the caller must not go on.
  virtual Status Sync() = 0;

  // Begins to bring the written bytes [begin, end) to disk, so that a later Sync waits for less. Makes
  // nothing durable. An error counts as an error of Sync.
  virtual Status BeginSync(std::uint64_t /*begin*/, std::uint64_t /*end*/) { return Status(); }

  // Writes a piece of a large file, which is written in many pieces and not read soon. The write may bypass
  // the page cache, and may still go on when the call has returned. So the piece stays in use until
  // kPiecesLater more calls of WriteLater, or one of WaitForPieces, have returned; these return its error.
  // Writes of other parts may go on beside it.
  static constexpr std::size_t kPiecesLater = 3;
  virtual Status WriteLater(std::uint64_t offset, std::span<const std::byte> piece) {
    return WriteAt(offset, std::span(&piece, 1));
  }
  // Returns once no piece is in use any more. Sync waits for the pieces, too.
  virtual Status WaitForPieces() { return Status(); }

  // Hints that the synced bytes are not read soon, so that the page cache need not keep them.
  virtual void DropFromMemory() {}

 protected:
  WritableFile() = default;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  virtual std::uint64_t size() const = 0;  // at the time it was opened
  // Returns when the bytes last changed, in seconds since 1970; nothing if the file system does not say.
  virtual std::optional<std::uint64_t> changed_at() const { return std::nullopt; }
  // Fills `bytes` from `offset` on. UNAVAILABLE, naming the file: the file is too short.
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const = 0;

  // Returns the offset, from `offset` on, of the next byte that may not be 0, or size() if the rest is 0. It
  // lets a reader skip the holes of a sparse file.
  virtual std::uint64_t NextData(std::uint64_t offset) const { return offset; }

  // Hints that bytes [begin, end) will be read soon. `end` may lie behind the file's end.
  virtual void ReadAhead(std::uint64_t /*begin*/, std::uint64_t /*end*/) const {}

  // Hints that bytes [begin, end) are not read again soon, so that the page cache need not keep them. `end`
  // may lie behind the file's end.
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
  // Opens an existing file to change it.
  virtual Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;

  // Renames a file or folder atomically. Replaces a file of the new name.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file. NOT_FOUND.
  virtual Status Remove(const std::string& path) = 0;
  // Removes a folder and its contents. OK if there is none.
  virtual Status RemoveFolder(const std::string& path) = 0;
  // Makes a folder. OK if there is one already.
  virtual Status MakeFolder(const std::string& path) = 0;
  // Returns the sorted names in a folder, without "." and "..". NOT_FOUND.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // Returns once the folder's names are on disk.
  virtual Status SyncFolder(const std::string& path) = 0;

 protected:
  FileSystem() = default;
};

// Returns the system's files.
FileSystem& SystemFiles();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_FILE_SYSTEM_H_
