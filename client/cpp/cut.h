// How a batch is cut into the parts of several requests. Which part a gradient is in decides the order in which it is
// summed, so these rules are the Python client's to the letter (client/python/slotwise/batch.py).
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_CUT_H_
#define SLOTWISE_CLIENT_CPP_CUT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "slotwise/batch.h"

namespace slotwise::client {

// Samples [first, last) of a batch.
struct SampleRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  std::uint64_t size() const { return last - first; }
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// The bytes that the keys, weights and offsets of `samples` take in a request. REQUIRES: a checked batch (CheckBatch).
std::uint64_t PartBytes(const BatchView& batch, std::uint32_t slots, SampleRange samples);

// Ranges of samples, one a request; at least one, even for no samples. Every rank gets a part if there is enough to
// share, every channel (`channels` a rank) if that leaves parts of a good size, and parts are of at most 4 MiB, on
// average, unless one sample is larger. `batch_bytes`: of the whole batch's values, or of its keys,
// weights and offsets if they are more.
std::vector<SampleRange> Cut(std::uint64_t samples, std::uint64_t batch_bytes, std::uint64_t ranks,
                             std::uint64_t channels);

// `parts` ranges, as even as can be; empty ones if there are more parts than samples.
std::vector<SampleRange> EvenRanges(std::uint64_t samples, std::uint64_t parts);

// Halves every range whose request is larger than `limit`, until it fits or is one sample.
std::vector<SampleRange> HalveUntilFit(const std::vector<SampleRange>& ranges,
                                       const std::function<std::uint64_t(SampleRange)>& request_bytes,
                                       std::uint64_t limit);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CUT_H_
