// ProbeLengths is a histogram of how far searches of a hash table went: how many pairs of cells each looked
// at (kernels/body/hash_table.h). A pair is 32 bytes, which a GPU reads from memory at once, so a length is a
// number of reads. 1 is the best.
// Thread-safety: a plain value.
#ifndef SLOTWISE_PROBE_LENGTHS_H_
#define SLOTWISE_PROBE_LENGTHS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace slotwise {

struct ProbeLengths {
  // Bucket 0 counts searches of one pair; bucket b those of more than 2^(b-1) pairs and at most 2^b; the last
  // bucket also counts all that are longer.
  static constexpr std::size_t kBuckets = 12;
  // Returns the most pairs that a search of a bucket looked at. REQUIRES: bucket < kBuckets - 1.
  static constexpr std::uint64_t BoundOf(std::size_t bucket) { return std::uint64_t{1} << bucket; }
  // REQUIRES: pairs >= 1.
  static constexpr std::size_t BucketOf(std::uint64_t pairs) {
    return std::min(static_cast<std::size_t>(std::bit_width(pairs - 1)), kBuckets - 1);
  }

  // Counts a search that looked at `pairs` pairs. REQUIRES: pairs >= 1.
  void Count(std::uint64_t pairs) {
    ++buckets[BucketOf(pairs)];
    sum += pairs;
  }
  // Returns what was counted after `before`, an earlier reading of the same histogram.
  ProbeLengths Since(const ProbeLengths& before) const {
    ProbeLengths since{.buckets = {}, .sum = sum - before.sum};
    for (std::size_t b = 0; b < kBuckets; ++b) since.buckets[b] = buckets[b] - before.buckets[b];
    return since;
  }
  friend bool operator==(const ProbeLengths&, const ProbeLengths&) = default;

  std::array<std::uint64_t, kBuckets> buckets = {};
  std::uint64_t sum = 0;  // pairs that all searches together looked at
};

}  // namespace slotwise

#endif  // SLOTWISE_PROBE_LENGTHS_H_
