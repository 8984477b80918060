#include "server/collective/host_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <random>

namespace slotwise {
namespace {

// No other process draws such a name, so a process that finds a segment under it has found this one.
HostSegment::Name NewName() {
  std::random_device random;
  const auto draw = [&] { return static_cast<unsigned long long>(random()) << 32 | random(); };
  HostSegment::Name name{};
  std::snprintf(name.data(), name.size(), "/slotwise-%016llx%016llx", draw(), draw());
  return name;
}

}  // namespace

std::unique_ptr<HostSegment> HostSegment::Make(std::size_t bytes) {
  const Name name = NewName();
  const int file = shm_open(name.data(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  // A file of this size without its memory would end a process that touches missing memory.
  if (posix_fallocate(file, 0, static_cast<off_t>(bytes)) != 0) {
    close(file);
    shm_unlink(name.data());
    return nullptr;
  }
  auto made = Map(name, file, bytes, true);
  if (!made) shm_unlink(name.data());
  return made;
}

std::unique_ptr<HostSegment> HostSegment::Open(const Name& name, std::size_t bytes) {
  const int file = shm_open(name.data(), O_RDWR | O_CLOEXEC, 0);
  return file < 0 ? nullptr : Map(name, file, bytes, false);
}

std::unique_ptr<HostSegment> HostSegment::Map(const Name& name, int file, std::size_t bytes, bool has_name) {
  struct stat found {};
  void* data = MAP_FAILED;
  if (fstat(file, &found) == 0 && static_cast<std::size_t>(found.st_size) == bytes) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (data == MAP_FAILED) return nullptr;
  return std::unique_ptr<HostSegment>(new HostSegment(name, static_cast<std::byte*>(data), bytes, has_name));
}

HostSegment::~HostSegment() {
  RemoveName();
  munmap(data_, bytes_);
}

void HostSegment::RemoveName() {
  if (has_name_) shm_unlink(name_.data());
  has_name_ = false;
}

}  // namespace slotwise
