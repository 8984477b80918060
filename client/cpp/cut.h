// Cuts a batch into the parts of several requests. The part that a gradient is in decides the order in which
// the server sums it, so these rules equal the Python client's exactly (client/python/slotwise/batch.py).
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

// Returns the bytes that the keys, weights and offsets of `samples` take in a request.
// REQUIRES: a checked batch (CheckBatch).
std::uint64_t PartBytes(const BatchView& batch, std::uint32_t slots, SampleRange samples);

// Cuts `samples` into ranges, one a request; there is at least one range, even for no samples. Every rank
// gets a part if the batch is large enough, and every channel (`channels` a rank) gets one if the parts are
// then still of a good size. Parts have at most 4 MiB on average, unless one sample is larger. `batch_bytes`:
// the bytes of the whole batch's values, or of its keys, weights and offsets if these are more.
std::vector<SampleRange> Cut(std::uint64_t samples, std::uint64_t batch_bytes, std::uint64_t ranks,
                             std::uint64_t channels);

// Returns `parts` ranges, as even as possible; some are empty if there are more parts than samples.
std::vector<SampleRange> EvenRanges(std::uint64_t samples, std::uint64_t parts);

// Halves every range whose request is larger than `limit`, until the request fits or the range is one sample.
std::vector<SampleRange> HalveUntilFit(const std::vector<SampleRange>& ranges,
                                       const std::function<std::uint64_t(SampleRange)>& request_bytes,
                                       std::uint64_t limit);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CUT_H_
