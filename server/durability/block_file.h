// BlockWriter and BlockReader: files that are written once, in order, with a checksum for each block.
//
// Because each block has its own checksum, a rank that reads its slice of a file verifies only the blocks
// that the slice touches.
// Errors: FAILED_PRECONDITION, naming the file: the file is missing or has another size, or a block's bytes
// are not those that were written. All other errors are the FileSystem's.
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

// A file's entry in the manifest.
struct FileEntry {
  std::string name;  // in its folder
  std::uint64_t bytes = 0;
  std::uint64_t block_bytes = kBlockBytes;
  std::vector<std::uint64_t> checksums;  // [ceil(bytes / block_bytes)] XXH3-64 of each block

  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

// Returns the number of blocks in a file.
constexpr std::uint64_t BlocksOf(std::uint64_t bytes, std::uint64_t block_bytes) {
  return bytes / block_bytes + (bytes % block_bytes != 0);
}

class BlockWriter {
 public:
  // Makes a new file. ALREADY_EXISTS.
  static Result<BlockWriter> Create(FileSystem& files, const std::string& folder, std::string name,
                                    std::uint64_t block_bytes = kBlockBytes);

  // Appends bytes, some of which stay in a buffer. After an error the file is unusable.
  Status Append(std::span<const std::byte> bytes);

  // Writes the buffered bytes and begins to bring the file to disk. A caller with several files calls
  // BeginFinish on all of them before the first Finish, and then waits for the disk about once.
  Status BeginFinish();

  // Writes the buffered bytes, syncs the file and closes it. The file's name is durable once the caller syncs
  // the folder. The file's pages are dropped from the page cache, so that a later verification reads the
  // disk, and a large file does not displace other data.
  Result<FileEntry> Finish();

 private:
  BlockWriter(std::unique_ptr<WritableFile> file, std::string name, std::uint64_t block_bytes);

  void Count(std::span<const std::byte> bytes);
  Status Write();
  Status Flush();
  std::span<const std::byte> Filled() const { return piece_.First(filled_); }

  FileEntry entry_;  // of the appended bytes, without the last block's checksum
  Checksum checksum_;
  AlignedMemory piece_;  // for the file's next bytes
  std::size_t filled_ = 0;
  std::deque<AlignedMemory> on_their_way_;  // a large file's pieces that `file_` may still read, oldest first
  std::unique_ptr<WritableFile> file_;
};

class BlockReader {
 public:
  // Opens a file. REQUIRES: `entry` has BlocksOf(bytes, block_bytes) checksums.
  static Result<BlockReader> Open(FileSystem& files, const std::string& folder, const FileEntry& entry);

  // Checks that the file begins with `expected`. This compares bytes only and verifies no checksum.
  Status CheckBeginning(std::string_view expected) const;

  // Fills `bytes` from `offset` on, and verifies all blocks that contain them. Keeps the last block, so that
  // a sequential reader reads no block twice. REQUIRES: offset + bytes.size() <= the entry's bytes.
  Status Read(std::uint64_t offset, std::span<std::byte> bytes);

  // Reads as Read does, faster for a sequential reader: a block is verified only when its end is read, or in
  // Settle. REQUIRES: the caller calls Settle before it relies on the bytes.
  Status ReadOn(std::uint64_t offset, std::span<std::byte> bytes);
  // Verifies the rest of the blocks that ReadOn has read in part.
  Status Settle();

  // Reads and verifies every block. The page cache need not keep any of them.
  Status Verify();

  const FileEntry& entry() const { return entry_; }

 private:
  BlockReader(std::unique_ptr<ReadableFile> file, std::string path, FileEntry entry);

  std::uint64_t SizeOf(std::uint64_t block) const;
  Status ReadBlock(std::uint64_t block, std::span<std::byte> bytes) const;
  Status Keep(std::uint64_t block);
  Status ReadOnInBlock(std::span<std::byte> bytes);
  Status Compare(std::uint64_t block, std::uint64_t checksum) const;
  // Asks the system to read ahead from `begin`, where a read begins now, and to drop what was read before.
  void ReadAhead(std::uint64_t begin) const;

  // A block that ReadOn has read in part, from the block's begin on.
  struct Begun {
    std::uint64_t block = 0;
    std::uint64_t read = 0;
  };

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  FileEntry entry_;
  mutable std::uint64_t ahead_ = 0;    // the system was asked to read up to here
  mutable std::uint64_t dropped_ = 0;  // the system was asked to drop everything before
  std::optional<Begun> begun_;
  Checksum checksum_;                  // of the bytes of `begun_` that were read
  std::optional<std::uint64_t> kept_;  // the block that `block_` holds
  std::vector<std::byte> block_;
};

// Returns the verified bytes of a whole file.
Result<std::vector<std::byte>> ReadWhole(FileSystem& files, const std::string& folder,
                                         const FileEntry& entry);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_BLOCK_FILE_H_
