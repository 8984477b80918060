#include "kernels/backend/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/backend/host_memory.h"

namespace slotwise {
namespace {

std::size_t RoundUp(std::size_t bytes) { return (bytes + kLargePage - 1) / kLargePage * kLargePage; }

// These count the bytes of all ranges of the process, and the second one those of TableBytes too.
std::atomic<std::size_t> all_reserved{0};
std::atomic<std::size_t> all_committed{0};

constexpr std::size_t kNoShare = std::numeric_limits<std::size_t>::max();

// The memory that this process may have in all, and the part of it that is kept from tables.
struct Share {
  std::size_t most = kNoShare;
  std::size_t processes = 1;
  std::size_t resident_before = ResidentBytes();  // as the share began; a sixteenth is kept beside it
  std::optional<std::size_t> kept;                // if none, a sixteenth
  std::size_t beside_a_row = 0;
};

Share& MyShare() {
  static Share share;
  return share;
}

// Puts a large page in the place of the small ones of the first piece, now or, where the system is older than
// Linux 6.1, when it comes to it. Nothing depends on it but time.
void UseLargePage(void* piece) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which is newer than some C libraries
  madvise(piece, kLargePage, MADV_HUGEPAGE);
  madvise(piece, kLargePage, kCollapse);
}

}  // namespace

void AdviseLargePages(void* memory, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t skipped = RoundUp(begin) - begin;
  if (bytes < skipped + kLargePage) return;
  madvise(static_cast<char*>(memory) + skipped, (bytes - skipped) / kLargePage * kLargePage, MADV_HUGEPAGE);
}

void* MapMemory(std::size_t bytes) {
  const std::size_t more = bytes < kLargePage ? 0 : kLargePage;  // to begin at a large page
  void* const mapped =
      mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  if (more == 0) return mapped;
  auto* const begin = static_cast<char*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t before = RoundUp(address) - address;
  char* const memory = begin + before;
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t whole = (bytes + page - 1) / page * page;
  if (before > 0) munmap(begin, before);
  munmap(memory + whole, more - before);
  AdviseLargePages(memory, bytes);
  return memory;
}

void UnmapMemory(void* memory, std::size_t bytes) noexcept { munmap(memory, bytes); }

std::size_t HostMemoryForTables(const std::string& root) {
  const HostMemoryBytes memory = ReadHostMemory(root);
  const Share& share = MyShare();
  const std::size_t sixteenth = memory.total / sizing::kKeptFromTables / share.processes;
  const std::size_t kept = share.kept.value_or(share.resident_before + sixteenth);
  // It is unknown which memory is resident: what tables have and what is kept may both be untouched in part.
  const std::size_t promised = all_committed.load() + kept;
  const std::size_t resident = ResidentBytes();
  const std::size_t untouched = promised - std::min(promised, resident);
  const std::size_t available = memory.available - std::min(memory.available, untouched);
  return std::min(available, share.most - std::min(share.most, std::max(promised, resident)));
}

void ShareHostMemory(std::size_t processes, const std::string& root) {
  Share& share = MyShare();
  share = {};
  share.processes = processes;
  if (processes > 1) share.most = ReadHostMemory(root).available / processes + share.resident_before;
}

void KeepFromTables(std::size_t bytes, std::size_t bytes_a_row) {
  MyShare().kept = bytes;
  MyShare().beside_a_row = bytes_a_row;
}

std::size_t KeptBesideARow() { return MyShare().beside_a_row; }

void TableBytes::Set(std::size_t bytes) {
  all_committed += bytes;
  all_committed -= std::exchange(bytes_, bytes);
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
  // The first piece has small pages until it is full, or each of a small table's ranges would take a large
  // one for a few rows.
  madvise(data_, kLargePage, MADV_NOHUGEPAGE);
  AdviseLargePages(static_cast<char*>(data_) + kLargePage, reserved_ - kLargePage);
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
  if (committed_ == kLargePage) UseLargePage(data_);
  all_committed += wanted - committed_;
  committed_ = wanted;
}

}  // namespace slotwise
