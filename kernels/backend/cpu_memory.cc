#include "kernels/backend/cpu_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <limits>

#include "kernels/backend/host_memory.h"

namespace slotwise {
namespace {

std::size_t RoundUp(std::size_t bytes) { return (bytes + kLargePage - 1) / kLargePage * kLargePage; }

// These count the bytes of all ranges of the process.
std::atomic<std::size_t> all_reserved{0};
std::atomic<std::size_t> all_committed{0};

// What this process may have beside what it had when it got its share.
constexpr std::size_t kNoShare = std::numeric_limits<std::size_t>::max();
std::atomic<std::size_t> share{kNoShare};
std::atomic<std::size_t> resident_before{0};

// Puts a large page in the place of the small ones of the first piece, now or, where the system is older than
// Linux 6.1, when it comes to it. Nothing depends on it but time.
void UseLargePage(void* piece) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which is newer than some C libraries
  madvise(piece, kLargePage, MADV_HUGEPAGE);
  madvise(piece, kLargePage, kCollapse);
}

struct OwnMemory {
  std::size_t committed = 0;  // of all ranges
  std::size_t resident = 0;   // of ranges and everything else, beside what was there before

  // The memory of ranges is touched before any other is, as far as anybody knows: so what requests take while
  // rows are untouched counts once. A sixteenth of the host is there for that.
  std::size_t untouched() const { return committed - std::min(committed, resident); }
  std::size_t all() const { return resident + untouched(); }
};

OwnMemory ReadOwnMemory() {
  const std::size_t resident = ResidentBytes();
  return {all_committed.load(), resident - std::min(resident, resident_before.load())};
}

}  // namespace

void AdviseLargePages(void* memory, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t skipped = RoundUp(begin) - begin;
  if (bytes < skipped + kLargePage) return;
  madvise(static_cast<char*>(memory) + skipped, (bytes - skipped) / kLargePage * kLargePage, MADV_HUGEPAGE);
}

std::size_t HostMemoryForTables(const std::string& root) {
  const HostMemoryBytes memory = ReadHostMemory(root);
  const OwnMemory own = ReadOwnMemory();
  const std::size_t kept = memory.total / sizing::kKeptFromTables + own.untouched();
  const std::size_t available = memory.available - std::min(memory.available, kept);
  const std::size_t most = share.load();
  return std::min(available, most - std::min(most, own.all()));
}

void ShareHostMemory(std::size_t processes, const std::string& root) {
  share = kNoShare;
  resident_before = 0;
  if (processes == 1) return;
  const std::size_t available = HostMemoryForTables(root);
  resident_before = ResidentBytes();
  share = available / processes;
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
