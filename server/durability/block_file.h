// Files that are written once, from begin to end, with a checksum for each block of them.
//
// A checksum for a block, not for the file, lets a rank read its slice of a file and verify no more than the
// blocks that the slice touches.
// Errors: FAILED_PRECONDITION, naming the file: it is missing, has another size, or a block's bytes are not
// those that were written. All others are the FileSystem's.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_BLOCK_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/durability/aligned_memory.h"
#include "server/durability/checksum.h"
#include "server/durability/file_system.h"
#include "slotwise/status.h"

namespace slotwise {

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{16} << 20;

// What a manifest says about a file.
struct FileEntry {
  std::string name;  // in its folder
  std::uint64_t bytes = 0;
  std::uint64_t block_bytes = kBlockBytes;
  std::vector<std::uint64_t> checksums;  // [ceil(bytes / block_bytes)] XXH3-64 of each block

  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

// How many blocks a file has.
constexpr std::uint64_t BlocksOf(std::uint64_t bytes, std::uint64_t block_bytes) {
  return bytes / block_bytes + (bytes % block_bytes != 0);
}

class BlockWriter {
 public:
  // Makes a new file. ALREADY_EXISTS.
  static Result<BlockWriter> Create(FileSystem& files, const std::string& folder, std::string name,
                                    std::uint64_t block_bytes = kBlockBytes);

  // Takes the next bytes, of which some stay in a buffer. After an error the file is good for nothing.
  Status Append(std::span<const std::byte> bytes);

  // Writes what is left, and begins to bring it to disk. A caller that finishes several files begins with all
  // of them, and then waits for the disk about once.
  Status BeginFinish();

  // Writes what is left, syncs the file and closes it. The system's memory keeps none of it, so that who
  // verifies the file reads the disk, and that a large file does not take the place of others' memory. Its
  // name is durable once the caller syncs the folder.
  Result<FileEntry> Finish();

 private:
  BlockWriter(std::unique_ptr<WritableFile> file, std::string name, std::uint64_t block_bytes);

  void Count(std::span<const std::byte> bytes);
  Status Write();
  Status Flush();
  std::span<const std::byte> Filled() const { return piece_.First(filled_); }

  FileEntry entry_;  // of the bytes that were appended, without the last block's checksum
  Checksum checksum_;
  AlignedMemory piece_;  // for the file's next bytes
  std::size_t filled_ = 0;
  std::deque<AlignedMemory> on_their_way_;  // of a large file, the oldest first: `file_` may still read them
  std::unique_ptr<WritableFile> file_;
};

class BlockReader {
 public:
  // Opens a file. REQUIRES: `entry` has BlocksOf(bytes, block_bytes) checksums.
  static Result<BlockReader> Open(FileSystem& files, const std::string& folder, const FileEntry& entry);

  // Says whether the file begins so, by its bytes alone: no checksum is compared.
  Status CheckBeginning(std::string_view expected) const;

  // Fills `bytes` from `offset` on, having verified all blocks that they lie in. It keeps the last block, so
  // that reading on from there reads no block twice. REQUIRES: offset + bytes.size() <= the entry's bytes.
  Status Read(std::uint64_t offset, std::span<std::byte> bytes);

  // Reads as Read does, for who reads on and on: it keeps no block of which the begin is read, and
  // verifies it when its end was read, or in Settle. REQUIRED: Settle, before what was read counts.
  Status ReadOn(std::uint64_t offset, std::span<std::byte> bytes);
  // Verifies the rest of what ReadOn has read.
  Status Settle();

  // Reads and verifies every block, of which the system's memory need not keep any.
  Status Verify();

  const FileEntry& entry() const { return entry_; }

 private:
  BlockReader(std::unique_ptr<ReadableFile> file, std::string path, FileEntry entry);

  std::uint64_t SizeOf(std::uint64_t block) const;
  Status ReadBlock(std::uint64_t block, std::span<std::byte> bytes) const;
  Status Keep(std::uint64_t block);
  Status ReadOnInBlock(std::span<std::byte> bytes);
  Status Compare(std::uint64_t block, std::uint64_t checksum) const;
  // Has the system read what comes behind `begin`, where something is read now, and drop what was read
  // before.
  void ReadAhead(std::uint64_t begin) const;

  // A block of which ReadOn has read some bytes, from its begin on.
  struct Begun {
    std::uint64_t block = 0;
    std::uint64_t read = 0;
  };

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  FileEntry entry_;
  mutable std::uint64_t ahead_ = 0;    // the system was asked to read up to here
  mutable std::uint64_t dropped_ = 0;  // and to drop what lies before
  std::optional<Begun> begun_;
  Checksum checksum_;                  // of what was read of it
  std::optional<std::uint64_t> kept_;  // which block `block_` holds
  std::vector<std::byte> block_;
};

// Returns the bytes of a whole file, verified.
Result<std::vector<std::byte>> ReadWhole(FileSystem& files, const std::string& folder,
                                         const FileEntry& entry);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_BLOCK_FILE_H_
