#include "kernels/backend/cpu_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

#include "kernels/backend/host_memory.h"

namespace slotwise {
namespace {

// A large page; address ranges are committed in pieces of it.
constexpr std::size_t kPiece = std::size_t{2} << 20;

std::size_t RoundUp(std::size_t bytes) { return (bytes + kPiece - 1) / kPiece * kPiece; }

// These count the bytes of all ranges of the process.
std::atomic<std::size_t> all_reserved{0};
std::atomic<std::size_t> all_committed{0};

}  // namespace

void AdviseLargePages(void* memory, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t skipped = RoundUp(begin) - begin;
  if (bytes < skipped + kPiece) return;
  madvise(static_cast<char*>(memory) + skipped, (bytes - skipped) / kPiece * kPiece, MADV_HUGEPAGE);
}

std::size_t HostMemoryForTables() {
  const HostMemoryBytes memory = ReadHostMemory();
  const std::size_t committed = all_committed.load();
  const std::size_t untouched = committed - std::min(committed, ResidentBytes());
  const std::size_t kept = memory.total / 16 + untouched;
  return memory.available - std::min(memory.available, kept);
}

AddressRange::AddressRange(std::size_t bytes) {
  static const std::size_t most = RoundUp(std::min(ReadHostMemory().total, kMostAddresses));
  const std::size_t reserved = std::min(RoundUp(std::max<std::size_t>(bytes, 1)), most);
  if (all_reserved.fetch_add(reserved) + reserved > kMostAddresses) {
    all_reserved -= reserved;
    throw std::bad_alloc();
  }
  void* memory = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    all_reserved -= reserved;
    throw std::bad_alloc();
  }
  data_ = memory;
  reserved_ = reserved;
  AdviseLargePages(data_, reserved_);
}

AddressRange::~AddressRange() {
  if (data_ == nullptr) return;
  munmap(data_, reserved_);
  all_reserved -= reserved_;
  all_committed -= committed_;
}

void AddressRange::Commit(std::size_t bytes) {
  if (bytes <= committed_) return;
  const std::size_t wanted = RoundUp(bytes);
  if (wanted > reserved_) throw std::bad_alloc();
  char* front = static_cast<char*>(data_);
  if (mprotect(front + committed_, wanted - committed_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  all_committed += wanted - committed_;
  committed_ = wanted;
}

}  // namespace slotwise
