#include "server/ops/disk_space.h"

#include <sys/statvfs.h>

#include <utility>

namespace slotwise {
namespace {

std::optional<DiskSpace::Reading> Ask(const std::string& folder) {
  struct statvfs facts {};
  if (statvfs(folder.c_str(), &facts) != 0) return std::nullopt;
  const std::uint64_t block = facts.f_frsize;
  return DiskSpace::Reading{.bytes = block * facts.f_blocks, .free_bytes = block * facts.f_bavail};
}

}  // namespace

DiskSpace::DiskSpace(std::string folder)
    : folder_(std::move(folder)),
      newest_(Ask(folder_)),
      read_at_(std::chrono::steady_clock::now()),
      thread_([this] { Run(); }) {}

DiskSpace::~DiskSpace() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

std::optional<DiskSpace::Reading> DiskSpace::Read() const {
  const std::lock_guard lock(mutex_);
  if (std::chrono::steady_clock::now() - read_at_ > kStale) return std::nullopt;
  return newest_;
}

void DiskSpace::Run() {
  std::unique_lock lock(mutex_);
  while (!stops_.wait_for(lock, kEvery, [this] { return stopping_; })) {
    lock.unlock();
    const auto reading = Ask(folder_);
    lock.lock();
    newest_ = reading;
    read_at_ = std::chrono::steady_clock::now();
  }
}

}  // namespace slotwise
