#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "server/durability/file_system.h"
#include "server/durability/open_file.h"
#include "server/durability/streamed_reads.h"
#include "server/durability/streamed_writes.h"
#include "server/durability/system_errors.h"

namespace slotwise {

Status SystemFailure(const char* operation, const std::string& path, int error) {
  std::string message =
      "cannot " + std::string(operation) + " " + path + ": " + std::generic_category().message(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return ResourceExhausted(std::move(message)).Because(Reason::kDiskFull);
    case ENOENT:
    case ENOTDIR:
      return NotFound(std::move(message));
    case EEXIST:
      return AlreadyExists(std::move(message));
    case EISDIR:
    case ENXIO:  // from open: a socket, or a FIFO without a reader
      return FailedPrecondition(std::move(message));
    default:
      return Unavailable(std::move(message));
  }
}

namespace {

// The most pieces in one system call; Linux takes 1024.
constexpr std::size_t kPiecesACall = 1024;
constexpr std::size_t kZerosACall = std::size_t{1} << 20;

// Tells the system how a part of a file will be used. 0 bytes mean all behind `begin`. An error does not
// matter.
void Advise(int file, std::uint64_t begin, std::uint64_t bytes, int use) {
  [[maybe_unused]] const int ignored =
      ::posix_fadvise(file, static_cast<off_t>(begin), static_cast<off_t>(bytes), use);
}

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor(int number, std::string path) : number_(number), path_(std::move(path)) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  const std::string& path() const { return path_; }

 private:
  int number_;
  std::string path_;
};

class SystemWritableFile final : public WritableFile {
 public:
  SystemWritableFile(int number, std::string path) : file_(number, std::move(path)) {}

  Status WriteAt(std::uint64_t offset, std::span<const std::span<const std::byte>> pieces) override {
    std::vector<iovec> vectors;
    vectors.reserve(pieces.size());
    for (const std::span<const std::byte>& piece : pieces) {
      if (!piece.empty()) vectors.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
    }
    std::size_t first = 0;
    while (first < vectors.size()) {
      const int count = static_cast<int>(std::min(kPiecesACall, vectors.size() - first));
      const ssize_t written = Uninterrupted(
          [&] { return ::pwritev(file_.number(), &vectors[first], count, static_cast<off_t>(offset)); });
      if (written < 0) return SystemFailure("write to", file_.path(), errno);
      if (written == 0) return Unavailable("cannot write to " + file_.path() + ": it takes no more bytes");
      offset += static_cast<std::uint64_t>(written);
      first = Advance(vectors, first, static_cast<std::size_t>(written));
    }
    return Status();
  }

  Status Reserve(std::uint64_t size) override {
    const int result =
        Uninterrupted([&] { return ::fallocate(file_.number(), 0, 0, static_cast<off_t>(size)); });
    if (result == 0) return Status();
    // Some file systems take space only by writing, for example ext3, older NFS and ZFS.
    if (errno == EOPNOTSUPP || errno == ENOSYS) return WriteZerosUpTo(size);
    return SystemFailure("take space for", file_.path(), errno);
  }

  Status Truncate(std::uint64_t size) override {
    const int result = Uninterrupted([&] { return ::ftruncate(file_.number(), static_cast<off_t>(size)); });
    return result == 0 ? Status() : SystemFailure("change the length of", file_.path(), errno);
  }

  Status WriteLater(std::uint64_t offset, std::span<const std::byte> piece) override {
    if (!streamed_) streamed_.emplace(file_.number(), file_.path());
    return streamed_->Write(offset, piece);
  }

  Status WaitForPieces() override { return streamed_ ? streamed_->Wait() : Status(); }

  Status Sync() override {
    if (Status status = WaitForPieces(); !status.ok()) return status;
    // An interrupted sync is not repeated: the system may have forgotten by then which bytes it could not
    // write.
    return ::fdatasync(file_.number()) == 0 ? Status() : SystemFailure("sync", file_.path(), errno);
  }

  Status BeginSync(std::uint64_t begin, std::uint64_t end) override {
    if (begin >= end) return Status();  // a length of 0 would mean up to the file's end
    const auto size = static_cast<off_t>(end - begin);
    const int result =
        ::sync_file_range(file_.number(), static_cast<off_t>(begin), size, SYNC_FILE_RANGE_WRITE);
    if (result == 0 || SyncsAtTheEnd(errno)) return Status();
    return SystemFailure("write back", file_.path(), errno);
  }

  void DropFromMemory() override { Advise(file_.number(), 0, 0, POSIX_FADV_DONTNEED); }

 private:
  // Returns the index of the first unwritten vector, and shortens that vector by its written part.
  static std::size_t Advance(std::vector<iovec>& vectors, std::size_t first, std::size_t written) {
    while (first < vectors.size() && written >= vectors[first].iov_len) written -= vectors[first++].iov_len;
    if (written > 0) {
      vectors[first].iov_base = static_cast<std::byte*>(vectors[first].iov_base) + written;
      vectors[first].iov_len -= written;
    }
    return first;
  }

  // Appends zeros until the file has `size` bytes.
  Status WriteZerosUpTo(std::uint64_t size) {
    struct stat facts {};
    if (::fstat(file_.number(), &facts) != 0) return SystemFailure("look at", file_.path(), errno);
    const auto before = static_cast<std::uint64_t>(facts.st_size);
    const std::vector<std::byte> zeros(kZerosACall);
    for (std::uint64_t offset = before; offset < size;) {
      const std::span<const std::byte> piece(
          zeros.data(), static_cast<std::size_t>(std::min<std::uint64_t>(kZerosACall, size - offset)));
      if (Status status = WriteAt(offset, std::span(&piece, 1)); !status.ok()) {
        // Gives back the space taken in vain. If that fails, too, the first error is the one to report.
        [[maybe_unused]] const Status back = Truncate(before);
        return status;
      }
      offset += piece.size();
    }
    return Status();
  }

  Descriptor file_;
  std::optional<StreamedWrites> streamed_;
};

class SystemReadableFile final : public ReadableFile {
 public:
  SystemReadableFile(int number, std::string path, const struct stat& facts)
      : file_(number, std::move(path)),
        size_(static_cast<std::uint64_t>(facts.st_size)),
        changed_at_(static_cast<std::uint64_t>(std::max<time_t>(facts.st_mtim.tv_sec, 0))) {}

  std::uint64_t size() const override { return size_; }
  std::optional<std::uint64_t> changed_at() const override { return changed_at_; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
    if (streamed_) {
      const std::size_t taken = streamed_->Read(offset, bytes);
      offset += taken;
      bytes = bytes.subspan(taken);
    }
    while (!bytes.empty()) {
      const ssize_t taken = Uninterrupted(
          [&] { return ::pread(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
      if (taken < 0) return SystemFailure("read", file_.path(), errno);
      if (taken == 0) {
        return Unavailable("cannot read " + file_.path() + ": it ends at byte " + std::to_string(offset));
      }
      offset += static_cast<std::uint64_t>(taken);
      bytes = bytes.subspan(static_cast<std::size_t>(taken));
    }
    return Status();
  }

  std::uint64_t NextData(std::uint64_t offset) const override {
    const off_t data = ::lseek(file_.number(), static_cast<off_t>(offset), SEEK_DATA);
    if (data >= 0) return std::max(offset, static_cast<std::uint64_t>(data));
    return errno == ENXIO ? size_ : offset;  // on other errors, the holes are unknown
  }

  void ReadAhead(std::uint64_t begin, std::uint64_t end) const override {
    end = std::min(end, size_);
    if (begin >= end) return;
    if (!std::exchange(tried_stream_, true)) streamed_ = StreamedReads::Open(file_.number(), size_);
    if (streamed_) {
      streamed_->Begin(begin, end);
    } else {
      Advise(file_.number(), begin, end - begin, POSIX_FADV_WILLNEED);
    }
  }
  void DropFromMemory(std::uint64_t begin, std::uint64_t end) const override {
    end = std::min(end, size_);
    if (begin < end) Advise(file_.number(), begin, end - begin, POSIX_FADV_DONTNEED);
  }

 private:
  Descriptor file_;
  std::uint64_t size_;
  std::uint64_t changed_at_;
  mutable bool tried_stream_ = false;
  mutable std::unique_ptr<StreamedReads> streamed_;  // null: reads go through the page cache
};

class SystemFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return Writable("make", path, O_CREAT | O_EXCL);
  }

  Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) override {
    return Writable("open", path, 0);
  }

  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    const auto file = OpenFile("open", path, O_RDONLY);
    if (!file.ok()) return file.status();
    return std::unique_ptr<ReadableFile>(
        std::make_unique<SystemReadableFile>(file->number, path, file->facts));
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) == 0) return Status();
    const int error = errno;
    return SystemFailure("rename", from + " to " + to, error);
  }

  Status Remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? Status() : SystemFailure("remove", path, errno);
  }

  Status RemoveFolder(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? SystemFailure("remove the folder", path, error.value()) : Status();
  }

  Status MakeFolder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) return Status();
    const int error = errno;
    struct stat facts {};
    if (error == EEXIST && ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return Status();
    return SystemFailure("make the folder", path, error);
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) return SystemFailure("list the folder", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(folder)) {  // NOLINT(concurrency-mt-unsafe): the stream is ours
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const int error = errno;
    ::closedir(folder);
    if (error != 0) return SystemFailure("list the folder", path, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  Status SyncFolder(const std::string& path) override {
    const int number =
        Uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
    if (number < 0) return SystemFailure("open the folder", path, errno);
    const Descriptor folder(number, path);
    return ::fsync(number) == 0 ? Status() : SystemFailure("sync the folder", path, errno);
  }

 private:
  static Result<std::unique_ptr<WritableFile>> Writable(const char* operation, const std::string& path,
                                                        int flags) {
    const auto file = OpenFile(operation, path, O_WRONLY | flags);
    if (!file.ok()) return file.status();
    return std::unique_ptr<WritableFile>(std::make_unique<SystemWritableFile>(file->number, path));
  }
};

}  // namespace

FileSystem& SystemFiles() {
  static SystemFileSystem files;
  return files;
}

}  // namespace slotwise
