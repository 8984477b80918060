#include "server/durability/block_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

namespace slotwise {
namespace {

// A file's first bytes are written in pieces of this size, and the later bytes of a large file in larger
// pieces, which a disk takes at full speed. Memory for large pieces costs a small file more than it gains.
constexpr std::size_t kFirstPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
constexpr std::uint64_t kLargeFileBytes = std::uint64_t{32} << 20;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
// The number of blocks that the system reads ahead, so that the disk works while blocks are copied and
// verified.
constexpr std::uint64_t kBlocksAhead = 3;

// Returns the readable part of an array's header.
std::string_view Shown(std::string_view header) {
  const std::size_t begin = header.find('{');
  const std::size_t end = header.rfind('}');
  return begin < end && end != std::string_view::npos ? header.substr(begin, end + 1 - begin) : header;
}

}  // namespace

BlockWriter::BlockWriter(std::unique_ptr<WritableFile> file, std::string name, std::uint64_t block_bytes)
    : entry_{.name = std::move(name), .bytes = 0, .block_bytes = block_bytes, .checksums = {}},
      file_(std::move(file)) {}

Result<BlockWriter> BlockWriter::Create(FileSystem& files, const std::string& folder, std::string name,
                                        std::uint64_t block_bytes) {
  auto file = files.Create(folder + "/" + name);
  if (!file.ok()) return file.status();
  return BlockWriter(std::move(*file), std::move(name), block_bytes);
}

Status BlockWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (piece_.size() == 0) piece_ = AlignedMemory(kFirstPieceBytes);
    const auto part = bytes.first(std::min(bytes.size(), piece_.size() - filled_));
    std::memcpy(piece_.data() + filled_, part.data(), part.size());
    filled_ += part.size();
    Count(part);
    bytes = bytes.subspan(part.size());
    if (filled_ < piece_.size()) continue;
    if (Status status = Write(); !status.ok()) return status;
  }
  return {};
}

void BlockWriter::Count(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t left = entry_.block_bytes - entry_.bytes % entry_.block_bytes;
    const auto part = bytes.first(std::min<std::uint64_t>(left, bytes.size()));
    checksum_.Update(part);
    entry_.bytes += part.size();
    if (part.size() == left) entry_.checksums.push_back(checksum_.Take());
    bytes = bytes.subspan(part.size());
  }
}

// Writes a full piece. In large files the write goes on while the next pieces are filled.
Status BlockWriter::Write() {
  if (piece_.size() < kPieceBytes) {
    if (Status status = BeginFinish(); !status.ok()) return status;
    if (entry_.bytes >= kLargeFileBytes) piece_ = AlignedMemory(kPieceBytes);
    return {};
  }
  Status status = file_->WriteLater(entry_.bytes - filled_, Filled());
  on_their_way_.push_back(std::move(piece_));
  filled_ = 0;
  if (on_their_way_.size() <= WritableFile::kPiecesLater) {
    piece_ = AlignedMemory(kPieceBytes);
  } else {
    piece_ = std::move(on_their_way_.front());
    on_their_way_.pop_front();
  }
  return status;
}

Status BlockWriter::Flush() {
  if (filled_ == 0) return {};
  const std::span<const std::byte> bytes = Filled();
  const std::uint64_t offset = entry_.bytes - std::exchange(filled_, 0);
  return file_->WriteAt(offset, std::array{bytes});
}

Status BlockWriter::BeginFinish() {
  const std::uint64_t offset = entry_.bytes - filled_;
  if (Status status = Flush(); !status.ok()) return status;
  if (Status status = file_->WaitForPieces(); !status.ok()) return status;
  on_their_way_.clear();
  return file_->BeginSync(offset, entry_.bytes);
}

Result<FileEntry> BlockWriter::Finish() {
  if (Status status = Flush(); !status.ok()) return status;
  if (entry_.bytes % entry_.block_bytes != 0) entry_.checksums.push_back(checksum_.Take());
  if (Status status = file_->Sync(); !status.ok()) return status;
  file_->DropFromMemory();
  file_.reset();
  return std::move(entry_);
}

BlockReader::BlockReader(std::unique_ptr<ReadableFile> file, std::string path, FileEntry entry)
    : file_(std::move(file)), path_(std::move(path)), entry_(std::move(entry)) {}

Result<BlockReader> BlockReader::Open(FileSystem& files, const std::string& folder, const FileEntry& entry) {
  std::string path = folder + "/" + entry.name;
  auto file = files.Open(path);
  if (!file.ok() && file.status().code() == StatusCode::kNotFound)
    return FailedPrecondition(path + " is missing");
  if (!file.ok()) return file.status();
  if ((*file)->size() != entry.bytes) {
    return FailedPrecondition(path + " has " + std::to_string((*file)->size()) + " bytes, not " +
                              std::to_string(entry.bytes));
  }
  return BlockReader(std::move(*file), std::move(path), entry);
}

Status BlockReader::CheckBeginning(std::string_view expected) const {
  std::string begins(std::min<std::uint64_t>(expected.size(), entry_.bytes), '\0');
  if (Status status = file_->ReadAt(0, std::as_writable_bytes(std::span(begins))); !status.ok())
    return status;
  if (begins == expected) return {};
  return FailedPrecondition(path_ + " does not begin with " + std::string(Shown(expected)) +
                            ": it is another array than its manifest says");
}

std::uint64_t BlockReader::SizeOf(std::uint64_t block) const {
  return std::min(entry_.block_bytes, entry_.bytes - block * entry_.block_bytes);
}

void BlockReader::ReadAhead(std::uint64_t begin) const {
  const std::uint64_t end = begin + kBlocksAhead * entry_.block_bytes;
  if (begin > ahead_ || end < ahead_) ahead_ = dropped_ = begin;  // this read does not follow the last one
  if (end > ahead_ && ahead_ < entry_.bytes) file_->ReadAhead(std::exchange(ahead_, end), end);
  if (begin >= dropped_ + entry_.block_bytes) file_->DropFromMemory(std::exchange(dropped_, begin), begin);
}

Status BlockReader::Compare(std::uint64_t block, std::uint64_t checksum) const {
  if (checksum == entry_.checksums[block]) return {};
  const std::uint64_t begin = block * entry_.block_bytes;
  return FailedPrecondition(path_ + " is damaged: bytes " + std::to_string(begin) + " to " +
                            std::to_string(begin + SizeOf(block)) + " are not those that were written");
}

Status BlockReader::ReadBlock(std::uint64_t block, std::span<std::byte> bytes) const {
  const std::uint64_t begin = block * entry_.block_bytes;
  ReadAhead(begin);
  if (Status status = file_->ReadAt(begin, bytes); !status.ok()) return status;
  return Compare(block, ChecksumOf(bytes));
}

Status BlockReader::Keep(std::uint64_t block) {
  if (kept_ == block) return {};
  kept_.reset();
  block_.resize(SizeOf(block));
  Status status = ReadBlock(block, block_);
  if (status.ok()) kept_ = block;
  return status;
}

Status BlockReader::Read(std::uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t block = offset / entry_.block_bytes;
    const std::uint64_t within = offset % entry_.block_bytes;
    const std::uint64_t size = std::min<std::uint64_t>(SizeOf(block) - within, bytes.size());
    if (size == SizeOf(block) && kept_ != block) {  // A whole block needs no copy.
      if (Status status = ReadBlock(block, bytes.first(size)); !status.ok()) return status;
    } else {
      if (Status status = Keep(block); !status.ok()) return status;
      std::copy_n(block_.begin() + static_cast<std::ptrdiff_t>(within), size, bytes.begin());
    }
    offset += size;
    bytes = bytes.subspan(size);
  }
  return {};
}

Status BlockReader::ReadOn(std::uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t block = offset / entry_.block_bytes;
    const std::uint64_t within = offset % entry_.block_bytes;
    const bool goes_on = begun_ && begun_->block == block && begun_->read == within;
    if (begun_ && !goes_on) {
      if (Status status = Settle(); !status.ok()) return status;
    }
    if (!goes_on && within == 0) begun_ = {.block = block, .read = 0};
    const auto piece = bytes.first(std::min<std::uint64_t>(SizeOf(block) - within, bytes.size()));
    Status status = begun_ ? ReadOnInBlock(piece) : Read(offset, piece);
    if (!status.ok()) return status;
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Status BlockReader::ReadOnInBlock(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kReadBytes, bytes.size()));
    const std::uint64_t begin = begun_->block * entry_.block_bytes + begun_->read;
    ReadAhead(begin);
    if (Status status = file_->ReadAt(begin, piece); !status.ok()) return status;
    checksum_.Update(piece);
    begun_->read += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  if (begun_->read < SizeOf(begun_->block)) return {};
  const std::uint64_t block = begun_->block;
  begun_.reset();
  return Compare(block, checksum_.Take());
}

Status BlockReader::Settle() {
  while (begun_) {
    kept_.reset();
    block_.resize(std::min<std::uint64_t>(kReadBytes, SizeOf(begun_->block) - begun_->read));
    if (Status status = ReadOnInBlock(block_); !status.ok()) return status;
  }
  return {};
}

Status BlockReader::Verify() {
  kept_.reset();
  block_.resize(std::min<std::uint64_t>(kReadBytes, entry_.bytes));
  for (std::uint64_t offset = 0; offset < entry_.bytes; offset += block_.size()) {
    const auto piece = std::span(block_).first(std::min<std::uint64_t>(block_.size(), entry_.bytes - offset));
    if (Status status = ReadOn(offset, piece); !status.ok()) return status;
  }
  file_->DropFromMemory(0, entry_.bytes);
  return {};
}

Result<std::vector<std::byte>> ReadWhole(FileSystem& files, const std::string& folder,
                                         const FileEntry& entry) {
  auto reader = BlockReader::Open(files, folder, entry);
  if (!reader.ok()) return reader.status();
  std::vector<std::byte> bytes(entry.bytes);
  if (Status status = reader->Read(0, bytes); !status.ok()) return status;
  return bytes;
}

}  // namespace slotwise
