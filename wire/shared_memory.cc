#include "wire/shared_memory.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <limits>

namespace slotwise {
namespace {

constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW;

std::atomic_ref<std::uint64_t> Alive(std::byte* at) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::Map(int descriptor, std::uint64_t bytes, bool takes_back) {
  void* at = MAP_FAILED;
  if (bytes > kFirstPlace && bytes <= std::numeric_limits<std::size_t>::max() / 2) {
    at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (at == MAP_FAILED) {
    close(descriptor);
    return nullptr;
  }
  madvise(at, bytes, MADV_HUGEPAGE);  // if the system allows it
  madvise(at, bytes, MADV_DONTFORK);  // a child would keep memory that its parent has freed
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(descriptor, static_cast<std::byte*>(at), static_cast<std::size_t>(bytes), takes_back));
}

std::shared_ptr<SharedMemory> SharedMemory::Make(std::uint64_t bytes, bool taken_back) {
  const int descriptor = memfd_create("slotwise-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return nullptr;
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0 ||
      fcntl(descriptor, F_ADD_SEALS, kSize | F_SEAL_SEAL) != 0) {
    close(descriptor);
    return nullptr;
  }
  auto memory = Map(descriptor, bytes, taken_back);
  if (memory != nullptr) Alive(memory->at_).store(1);
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::Open(int descriptor, std::uint64_t bytes) {
  struct stat file {};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSize) != kSize || fstat(descriptor, &file) != 0 ||
      static_cast<std::uint64_t>(file.st_size) != bytes) {
    close(descriptor);
    return nullptr;
  }
  return Map(descriptor, bytes, false);
}

std::optional<std::span<std::byte>> SharedMemory::Place(std::uint64_t at, std::uint64_t bytes) const {
  if (at < kFirstPlace || at % kArrayAlign != 0 || at > size_ || bytes > size_ - at) return std::nullopt;
  return this->bytes().subspan(at, bytes);
}

bool SharedMemory::alive() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return Alive(at_).load() != 0;
}

SharedMemory::~SharedMemory() {
  if (takes_back_) Alive(at_).store(0);
  munmap(at_, size_);
  // A client that keeps its descriptor would keep the memory, which is charged to no caller any more. Pages
  // that the client touches later are charged to the client.
  if (takes_back_) {
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size_));
  }
  close(descriptor_);
}

ssize_t SendWithDescriptor(int socket, std::span<const std::byte> bytes, int descriptor) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t ReceiveWithDescriptor(int socket, std::span<std::byte> bytes, int& descriptor) {
  descriptor = -1;
  iovec piece{bytes.data(), bytes.size()};
  // There is room for one descriptor; the system closes any others.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return size;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    if (header->cmsg_len < CMSG_LEN(sizeof(int))) continue;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(descriptor));
  }
  return size;
}

}  // namespace slotwise
