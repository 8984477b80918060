#include "kernels/backend/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
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

// Returns how many addresses a range for `bytes` bytes has.
std::size_t AddressesFor(std::size_t bytes) {
  static const std::size_t most = RoundUp(std::min(ReadHostMemory().total, AddressRange::kMostAddresses));
  return std::min(RoundUp(std::max<std::size_t>(bytes, 1)), most);
}

// Throws std::bad_alloc, and then counts nothing.
void CountReserved(std::size_t addresses) {
  if (all_reserved.fetch_add(addresses) + addresses <= AddressRange::kMostAddresses) return;
  all_reserved -= addresses;
  throw std::bad_alloc();
}

// Returns addresses without memory, or null.
void* ReserveAnywhere(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Returns how far an address is behind a boundary of large pages.
std::size_t Past(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % kLargePage; }

// Returns addresses without memory that begin so far behind a boundary of large pages, or null.
void* Reserve(std::size_t bytes, std::size_t past) {
  auto* const begin = static_cast<char*>(ReserveAnywhere(bytes + kLargePage));
  if (begin == nullptr) return nullptr;
  const std::size_t before = (past + kLargePage - Past(begin)) % kLargePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kLargePage - before);
  return begin + before;
}

// The first piece has small pages until it is full, or each of a small table's ranges would take a large one
// for a few rows.
void AdviseRange(void* memory, std::size_t bytes) {
  madvise(memory, kLargePage, MADV_NOHUGEPAGE);
  AdviseLargePages(static_cast<char*>(memory) + kLargePage, bytes - kLargePage);
}

bool MakeMemory(void* memory, std::size_t bytes) {
  return bytes == 0 || mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0;
}

bool IsMapped(char* page) {
  unsigned char resident = 0;
  return mincore(page, 1, &resident) == 0;
}

// Moves the pages of [from, from + bytes) to `to`, which is memory, and unmaps them at `from`. Older systems
// move pages of one mapping at a time: where they refuse, each half is tried. A single piece that does not
// move is copied, and takes a piece more meanwhile. REQUIRES: bytes is a multiple of kLargePage. Throws
// std::runtime_error if another thread has taken addresses at `to` that the system gave up.
void MovePages(char* from, char* to, std::size_t bytes) {
  if (bytes == 0 || mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED) return;
  // The system may have unmapped `to` before it refused.
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  if (!IsMapped(to) && mmap(to, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) != to)
    throw std::runtime_error("a table's memory could not be moved to a longer range of addresses");
  if (bytes == kLargePage) {
    std::memcpy(to, from, bytes);
    munmap(from, bytes);
    return;
  }
  const std::size_t half = bytes / kLargePage / 2 * kLargePage;
  MovePages(from, to, half);
  MovePages(from + half, to + half, bytes - half);
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
  const std::size_t reserved = AddressesFor(bytes);
  CountReserved(reserved);
  void* memory = ReserveAnywhere(reserved);
  if (memory == nullptr) {
    all_reserved -= reserved;
    throw std::bad_alloc();
  }
  data_ = memory;
  reserved_ = reserved;
  AdviseRange(data_, reserved_);
}

AddressRange::~AddressRange() {
  if (data_ == nullptr) return;
  munmap(data_, reserved_);
  all_reserved -= reserved_;
  all_committed -= committed_;
}

void AddressRange::Extend(std::size_t bytes) {
  const std::size_t wanted = AddressesFor(bytes);
  if (wanted <= reserved_) return;
  CountReserved(wanted);
  // A large page stays one only at the same distance from a boundary of large pages.
  void* const longer = Reserve(wanted, Past(data_));
  if (longer == nullptr || !MakeMemory(longer, committed_)) {
    if (longer != nullptr) munmap(longer, wanted);
    all_reserved -= wanted;
    throw std::bad_alloc();
  }
  AdviseRange(longer, wanted);
  if (committed_ > kLargePage) madvise(longer, kLargePage, MADV_HUGEPAGE);
  // The first piece may be a mapping of its own.
  const std::size_t first = std::min(committed_, kLargePage);
  MovePages(static_cast<char*>(data_), static_cast<char*>(longer), first);
  MovePages(static_cast<char*>(data_) + first, static_cast<char*>(longer) + first, committed_ - first);
  // The addresses of moved pages are free, and another thread may have them by now.
  munmap(static_cast<char*>(data_) + committed_, reserved_ - committed_);
  all_reserved -= reserved_;
  data_ = longer;
  reserved_ = wanted;
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
