// StoppableFiles gives access to files until `stop` returns true, so that reading many gigabytes can end
// soon. Changing files is optional.
// Thread-safety: any thread, if `stop` can be called by any thread.
#ifndef SLOTWISE_SERVER_RPC_STOPPABLE_FILES_H_
#define SLOTWISE_SERVER_RPC_STOPPABLE_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/durability/file_system.h"
#include "slotwise/status.h"

namespace slotwise {

// Once `stop` returns true, reading returns CANCELLED. Changing files is FAILED_PRECONDITION if `changes`
// refuses it; if not, it goes on after a stop, so that the stopped code can clean up.
class StoppableFiles final : public FileSystem {
 public:
  enum class Changes : bool { kRefused, kAllowed };

  // REQUIRES: `files` outlives this object, and this object outlives the files that it opens.
  StoppableFiles(FileSystem& files, std::function<bool()> stop, Changes changes = Changes::kRefused)
      : files_(files), stop_(std::move(stop)), may_change_(changes == Changes::kAllowed) {}

  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    if (stop_()) return Stopped();
    auto file = files_.Open(path);
    if (!file.ok()) return file.status();
    return std::unique_ptr<ReadableFile>(std::make_unique<File>(std::move(*file), stop_));
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    if (stop_()) return Stopped();
    return files_.List(path);
  }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (!may_change_) return ReadOnly(path);
    return files_.Create(path);
  }
  Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) override {
    if (!may_change_) return ReadOnly(path);
    return files_.OpenToWrite(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return may_change_ ? files_.Rename(from, to) : ReadOnly(from);
  }
  Status Remove(const std::string& path) override {
    return may_change_ ? files_.Remove(path) : ReadOnly(path);
  }
  Status RemoveFolder(const std::string& path) override {
    return may_change_ ? files_.RemoveFolder(path) : ReadOnly(path);
  }
  Status MakeFolder(const std::string& path) override {
    return may_change_ ? files_.MakeFolder(path) : ReadOnly(path);
  }
  Status SyncFolder(const std::string& path) override {
    return may_change_ ? files_.SyncFolder(path) : ReadOnly(path);
  }

 private:
  class File final : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> file, const std::function<bool()>& stop)
        : file_(std::move(file)), stop_(stop) {}
    std::uint64_t size() const override { return file_->size(); }
    Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
      return stop_() ? Stopped() : file_->ReadAt(offset, bytes);
    }
    void ReadAhead(std::uint64_t begin, std::uint64_t end) const override { file_->ReadAhead(begin, end); }
    void DropFromMemory(std::uint64_t begin, std::uint64_t end) const override {
      file_->DropFromMemory(begin, end);
    }

   private:
    const std::unique_ptr<ReadableFile> file_;
    const std::function<bool()>& stop_;
  };

  static Status Stopped() { return Cancelled("the caller of the read has gone"); }
  static Status ReadOnly(const std::string& path) { return FailedPrecondition(path + " is only read here"); }

  FileSystem& files_;
  const std::function<bool()> stop_;
  const bool may_change_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_STOPPABLE_FILES_H_
