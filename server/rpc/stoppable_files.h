// StoppableFiles: files that can be read until somebody asks to stop, so that reading many gigabytes ends
// soon.
// Thread-safety: any thread, if `stop` may be called by it.
#ifndef SLOTWISE_SERVER_RPC_STOPPABLE_FILES_H_
#define SLOTWISE_SERVER_RPC_STOPPABLE_FILES_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/durability/file_system.h"
#include "slotwise/status.h"

namespace slotwise {

// Once `stop` returns true, reading returns CANCELLED. Whatever changes files is FAILED_PRECONDITION.
class StoppableFiles final : public FileSystem {
 public:
  // REQUIRES: `files` outlives this, and what is opened does not.
  StoppableFiles(FileSystem& files, std::function<bool()> stop) : files_(files), stop_(std::move(stop)) {}

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

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override { return ReadOnly(path); }
  Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) override {
    return ReadOnly(path);
  }
  Status Rename(const std::string& from, const std::string&) override { return ReadOnly(from); }
  Status Remove(const std::string& path) override { return ReadOnly(path); }
  Status RemoveFolder(const std::string& path) override { return ReadOnly(path); }
  Status MakeFolder(const std::string& path) override { return ReadOnly(path); }
  Status SyncFolder(const std::string& path) override { return ReadOnly(path); }

 private:
  class File final : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> file, const std::function<bool()>& stop)
        : file_(std::move(file)), stop_(stop) {}
    std::uint64_t size() const override { return file_->size(); }
    Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
      return stop_() ? Stopped() : file_->ReadAt(offset, bytes);
    }

   private:
    const std::unique_ptr<ReadableFile> file_;
    const std::function<bool()>& stop_;
  };

  static Status Stopped() { return Cancelled("nobody waits for what is read"); }
  static Status ReadOnly(const std::string& path) { return FailedPrecondition(path + " is only read here"); }

  FileSystem& files_;
  const std::function<bool()> stop_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_STOPPABLE_FILES_H_
