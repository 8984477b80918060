#include "kernels/backend/cpu_memory.h"

#include <sys/mman.h>

#include <cstdint>

namespace slotwise {
namespace {

// A large page; address ranges are committed in pieces of it.
constexpr std::size_t kPiece = std::size_t{2} << 20;

std::size_t RoundUp(std::size_t bytes) { return (bytes + kPiece - 1) / kPiece * kPiece; }

}  // namespace

void AdviseLargePages(void* memory, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t skipped = RoundUp(begin) - begin;
  if (bytes < skipped + kPiece) return;
  madvise(static_cast<char*>(memory) + skipped, (bytes - skipped) / kPiece * kPiece, MADV_HUGEPAGE);
}

AddressRange::AddressRange(std::size_t bytes) : reserved_(RoundUp(std::max<std::size_t>(bytes, 1))) {
  void* memory = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = memory;
  AdviseLargePages(data_, reserved_);
}

AddressRange::~AddressRange() {
  if (data_ != nullptr) munmap(data_, reserved_);
}

void AddressRange::Commit(std::size_t bytes) {
  if (bytes <= committed_) return;
  const std::size_t wanted = RoundUp(bytes);
  if (wanted > reserved_) throw std::bad_alloc();
  char* front = static_cast<char*>(data_);
  if (mprotect(front + committed_, wanted - committed_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  committed_ = wanted;
}

}  // namespace slotwise
