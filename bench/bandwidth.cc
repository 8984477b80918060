#include "bench/bandwidth.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

namespace slotwise::bench {

double HostCopyBandwidth(int threads) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  tbb::task_arena arena(threads > 0 ? threads : tbb::task_arena::automatic);
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    arena.execute([&] {
      tbb::parallel_for(std::size_t{0}, kBytes / kPiece,
                        [&](std::size_t p) { std::memcpy(&to[p * kPiece], &from[p * kPiece], kPiece); });
    });
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2.0 * kBytes / time.count());
  }
  return best;
}

}  // namespace slotwise::bench
