// The benchmark of one shard: a pooled lookup, and a training step (lookup, gradient, optimizer).
#ifndef SLOTWISE_BENCH_EMBEDDING_H_
#define SLOTWISE_BENCH_EMBEDDING_H_

#include <cstdint>

#include "kernels/shard.h"

namespace slotwise::bench {

struct EmbeddingOptions {
  std::uint32_t rows = 1'000'000;
  std::uint32_t dim = 64;
  std::uint32_t slots = 26;
  std::uint32_t hot = 4;  // keys a bag
  std::uint32_t batch = 16'384;
  double alpha = 0;  // the power law's exponent over rows; 0 is uniform
  OptimizerKind optimizer = OptimizerKind::kSgd;
  int repeats = 7;
  std::uint64_t seed = 1;
};

struct Measured {
  double seconds = 0;  // median
  double bytes = 0;    // the least that must move through memory
};

struct EmbeddingResult {
  Measured lookup;
  Measured step;
};

// Fills a table, checks one lookup and one step against what they must give, then times both.
// Throws std::runtime_error if the check fails, or there is no memory.
EmbeddingResult RunEmbedding(Device& device, const EmbeddingOptions& options);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_EMBEDDING_H_
