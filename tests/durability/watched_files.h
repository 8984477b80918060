// WatchedFiles: wraps another FileSystem, with hooks and a record of changes that are not durable yet.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_DURABILITY_WATCHED_FILES_H_
#define SLOTWISE_TESTS_DURABILITY_WATCHED_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/durability/file_system.h"

namespace slotwise {

class WatchedFiles final : public FileSystem {
 public:
  explicit WatchedFiles(FileSystem& files) : files_(files) {}

  // Each hook may refuse the operation. `before_change` gets "create", "write", "begin sync", "write later",
  // "sync", "rename" (with the old path), "remove", "remove folder", "make folder" or "sync folder".
  std::function<Status(const std::string& operation, const std::string& path)> before_change;
  std::function<Status(const std::string& path)> before_open;

  std::uint64_t bytes_read = 0;
  std::vector<std::string> opened;             // files opened to read
  std::vector<std::string> dropped;            // files dropped from the page cache
  std::map<std::string, std::uint64_t> begun;  // end of the bytes from 0 on whose sync was begun
  std::map<std::string, std::vector<std::span<const std::byte>>> later;  // the pieces of WriteLater
  std::map<std::string, std::uint64_t> dropped_up_to;  // end of the dropped bytes of a file that is read
  std::map<std::string, std::uint64_t> read_ahead;     // end of the announced bytes
  std::set<std::string> dirty_files;                   // written, and not synced since
  std::set<std::string> dirty_folders;                 // with a name made or changed, and not synced since

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (Status status = Ask("create", path); !status.ok()) return status;
    auto file = files_.Create(path);
    if (!file.ok()) return file.status();
    dirty_folders.insert(FolderOf(path));
    dirty_files.insert(path);
    return std::unique_ptr<WritableFile>(std::make_unique<Writer>(*this, path, std::move(*file)));
  }
  Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) override {
    auto file = files_.OpenToWrite(path);
    if (!file.ok()) return file.status();
    return std::unique_ptr<WritableFile>(std::make_unique<Writer>(*this, path, std::move(*file)));
  }
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    if (before_open) {
      if (Status status = before_open(path); !status.ok()) return status;
    }
    auto file = files_.Open(path);
    if (!file.ok()) return file.status();
    opened.push_back(path);
    return std::unique_ptr<ReadableFile>(std::make_unique<Reader>(*this, path, std::move(*file)));
  }
  Status Rename(const std::string& from, const std::string& to) override {
    if (Status status = Ask("rename", from); !status.ok()) return status;
    dirty_folders.insert(FolderOf(to));
    return files_.Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    if (Status status = Ask("remove", path); !status.ok()) return status;
    dirty_folders.insert(FolderOf(path));
    return files_.Remove(path);
  }
  Status RemoveFolder(const std::string& path) override {
    if (Status status = Ask("remove folder", path); !status.ok()) return status;
    dirty_folders.insert(FolderOf(path));
    return files_.RemoveFolder(path);
  }
  Status MakeFolder(const std::string& path) override {
    if (Status status = Ask("make folder", path); !status.ok()) return status;
    dirty_folders.insert(FolderOf(path));
    return files_.MakeFolder(path);
  }
  Result<std::vector<std::string>> List(const std::string& path) override { return files_.List(path); }
  Status SyncFolder(const std::string& path) override {
    if (Status status = Ask("sync folder", path); !status.ok()) return status;
    Status status = files_.SyncFolder(path);
    if (status.ok()) dirty_folders.erase(path);
    return status;
  }

  static std::string FolderOf(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

 private:
  class Writer final : public WritableFile {
   public:
    Writer(WatchedFiles& watch, std::string path, std::unique_ptr<WritableFile> file)
        : watch_(watch), path_(std::move(path)), file_(std::move(file)) {}
    Status WriteAt(std::uint64_t offset, std::span<const std::span<const std::byte>> pieces) override {
      if (Status status = watch_.Ask("write", path_); !status.ok()) return status;
      watch_.dirty_files.insert(path_);
      return file_->WriteAt(offset, pieces);
    }
    Status Reserve(std::uint64_t size) override {
      watch_.dirty_files.insert(path_);
      return file_->Reserve(size);
    }
    Status Truncate(std::uint64_t size) override {
      watch_.dirty_files.insert(path_);
      return file_->Truncate(size);
    }
    Status Sync() override {
      if (Status status = watch_.Ask("sync", path_); !status.ok()) return status;
      Status status = file_->Sync();
      if (status.ok()) watch_.dirty_files.erase(path_);
      return status;
    }
    Status BeginSync(std::uint64_t begin, std::uint64_t end) override {
      if (Status status = watch_.Ask("begin sync", path_); !status.ok()) return status;
      if (begin == watch_.begun[path_]) watch_.begun[path_] = end;  // a gap shows
      return file_->BeginSync(begin, end);
    }
    Status WriteLater(std::uint64_t offset, std::span<const std::byte> piece) override {
      if (Status status = watch_.Ask("write later", path_); !status.ok()) return status;
      watch_.dirty_files.insert(path_);
      if (offset == watch_.begun[path_]) watch_.begun[path_] = offset + piece.size();
      watch_.later[path_].push_back(piece);
      return file_->WriteLater(offset, piece);
    }
    Status WaitForPieces() override { return file_->WaitForPieces(); }
    void DropFromMemory() override {
      watch_.dropped.push_back(path_);
      file_->DropFromMemory();
    }

   private:
    WatchedFiles& watch_;
    std::string path_;
    std::unique_ptr<WritableFile> file_;
  };

  class Reader final : public ReadableFile {
   public:
    Reader(WatchedFiles& watch, std::string path, std::unique_ptr<ReadableFile> file)
        : watch_(watch), path_(std::move(path)), file_(std::move(file)) {}
    std::uint64_t size() const override { return file_->size(); }
    Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
      watch_.bytes_read += bytes.size();
      return file_->ReadAt(offset, bytes);
    }
    std::uint64_t NextData(std::uint64_t offset) const override { return file_->NextData(offset); }
    void ReadAhead(std::uint64_t begin, std::uint64_t end) const override {
      watch_.read_ahead[path_] = end;
      file_->ReadAhead(begin, end);
    }
    void DropFromMemory(std::uint64_t begin, std::uint64_t end) const override {
      watch_.dropped_up_to[path_] = end;
      file_->DropFromMemory(begin, end);
    }

   private:
    WatchedFiles& watch_;
    std::string path_;
    std::unique_ptr<ReadableFile> file_;
  };

  Status Ask(const std::string& operation, const std::string& path) {
    return before_change ? before_change(operation, path) : Status();
  }

  FileSystem& files_;
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_DURABILITY_WATCHED_FILES_H_
