#include <sys/mman.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "bench/memory_speed.h"
#include "bench/timing.h"
#include "bench/workload.h"

namespace slotwise::bench {
namespace {

constexpr std::size_t kLine = 64;

// Memory in large pages if the system has them; the constructor touches every page.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes_, MADV_HUGEPAGE);
    std::memset(memory, 1, bytes_);
    data_ = static_cast<char*>(memory);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* data() const { return data_; }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  std::size_t bytes_;
  char* data_;
};

class HostMemorySpeed final : public MemorySpeed {
 public:
  explicit HostMemorySpeed(int threads) : shared_buffer_(threads) {}

  double CopyBytesPerSecond() override {
    constexpr std::size_t kBytes = std::size_t{128} << 20;
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    const Pages from(kBytes);
    const Pages to(kBytes);
    return 2.0 * kBytes / BestOf(5, kBytes / kPiece, [&](std::size_t p) {
             std::memcpy(to.data() + p * kPiece, from.data() + p * kPiece, kPiece);
           });
  }

  double GatherSeconds(std::span<const std::uint32_t> indices, std::size_t items,
                       std::size_t item_bytes) override {
    if (indices.empty()) return 0;
    constexpr std::size_t kPiece = 8192;
    const Pages memory(items * item_bytes);
    const std::size_t pieces = (indices.size() + kPiece - 1) / kPiece;
    std::vector<std::uint64_t> sums(pieces);
    double best = std::numeric_limits<double>::infinity();
    for (const std::size_t ahead : {4, 8, 16, 32}) {
      best = std::min(best, BestOf(3, pieces, [&](std::size_t p) {
                        const std::size_t begin = p * kPiece;
                        const auto piece = indices.subspan(begin, std::min(kPiece, indices.size() - begin));
                        sums[p] = Read(memory.data(), piece, item_bytes, ahead);
                      }));
    }
    return best;
  }

 private:
  static std::uint64_t Read(const char* memory, std::span<const std::uint32_t> indices,
                            std::size_t item_bytes, std::size_t ahead) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const char* later = memory + indices[std::min(i + ahead, indices.size() - 1)] * item_bytes;
      for (std::size_t at = 0; at < item_bytes; at += kLine) __builtin_prefetch(later + at);
      const char* item = memory + indices[i] * item_bytes;
      for (std::size_t at = 0; at < item_bytes; at += kLine) {
        std::uint32_t word = 0;
        std::memcpy(&word, item + at, sizeof(word));
        sum += word;
      }
    }
    return sum;
  }

  // Returns the best of several runs of work(piece) over all pieces.
  template <class Work>
  double BestOf(int runs, std::size_t pieces, Work work) {
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < runs; ++run) {
      best = std::min(best, SecondsOf([&] {
                        shared_buffer_.execute([&] { tbb::parallel_for(std::size_t{0}, pieces, work); });
                      }));
    }
    return best;
  }

  tbb::task_arena shared_buffer_;
};

}  // namespace

double MemorySpeed::LinesPerSecond() {
  constexpr std::uint32_t kLines = 4U << 20;
  constexpr std::size_t kReads = std::size_t{1} << 20;
  const std::vector<std::uint32_t> indices = DrawRows(kReads, kLines, 0, 1);
  return kReads / GatherSeconds(indices, kLines, kLine);
}

std::unique_ptr<MemorySpeed> MakeHostMemorySpeed(int threads) {
  return std::make_unique<HostMemorySpeed>(threads);
}

}  // namespace slotwise::bench
