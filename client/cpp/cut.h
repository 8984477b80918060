// Cuts batches into the parts of several requests. The part that a gradient is in decides the order in which
// the server sums it, so another rule would make tables of other bytes.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_CUT_H_
#define SLOTWISE_CLIENT_CPP_CUT_H_

#include <cstdint>
#include <functional>
#include <span>
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

// The samples that one request has of each of several batches, which are usually of different tables.
using Share = std::vector<SampleRange>;

// Cuts batches of `samples` into shares, one a request; there is at least one share, even for no samples.
// Every rank gets a request if the batches are large enough, and every channel (`channels` a rank) gets one
// if the requests are then still of a good size. Requests have at most 4 MiB on average, unless one sample is
// larger. `batch_bytes`: the bytes of all batches' values, or of their keys, weights and offsets if these are
// more. REQUIRES: a batch.
std::vector<Share> Cut(std::span<const std::uint64_t> samples, std::uint64_t batch_bytes, std::uint64_t ranks,
                       std::uint64_t channels);

// Returns `parts` shares, as even as possible; some are empty if there are more parts than samples.
std::vector<Share> EvenShares(std::span<const std::uint64_t> samples, std::uint64_t parts);

// Halves every share that does not fit, until it fits or has one sample of each batch.
std::vector<Share> HalveUntilFit(const std::vector<Share>& shares,
                                 const std::function<bool(const Share&)>& fits);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CUT_H_
