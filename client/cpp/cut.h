// Cuts the batches of a call into parts, and puts the parts into requests. The part that a gradient is in
// decides the order in which the server sums it, so another rule would make tables of other bytes.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_CUT_H_
#define SLOTWISE_CLIENT_CPP_CUT_H_

#include <cstddef>
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

// A batch of a call is cut by its size.
struct BatchSize {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // of the values, or of the keys, weights and offsets
};

// Each of a call's batches is cut into `parts` parts, and these go into about `requests` requests.
struct CutCounts {
  std::uint64_t requests = 1;
  std::uint64_t parts = 1;
};

// Returns how to cut a call's batches, which are usually of different tables. Every rank gets a request if
// the batches are large enough together, and every channel (`channels` a rank) gets one if the requests are
// then still of a good size; requests have at most 4 MiB on average. Parts cost time for each, so there are
// no more than it takes for that many requests, and for no part to be above 4 MiB, unless one sample is
// larger. So a batch that is alone has as many parts as there are requests.
CutCounts CountsFor(std::span<const BatchSize> batches, std::uint64_t ranks, std::uint64_t channels);

// Cuts `samples` samples into `parts` parts, as even as possible; some are empty if there are more parts than
// samples.
std::vector<SampleRange> EvenParts(std::uint64_t samples, std::uint64_t parts);

// Halves every part that does not fit, until it fits or has one sample.
std::vector<SampleRange> HalveUntilFit(const std::vector<SampleRange>& parts,
                                       const std::function<bool(SampleRange)>& fits);

// A part of one of a call's batches.
struct Piece {
  std::size_t table = 0;   // the batch's place in the call
  std::uint64_t part = 0;  // the part's place in the batch
  SampleRange samples;

  friend bool operator==(const Piece&, const Piece&) = default;
};
using Pieces = std::vector<Piece>;  // usually those of one request

struct PieceSize {
  std::uint64_t weight = 0;      // as BatchSize::bytes
  std::uint64_t in_message = 0;  // the bytes that the piece takes in its request
};

// Puts pieces into requests, neighbours together: at most `requests` of them, about even in weight, but more
// where one would have above `room` bytes. A piece that has more alone is a request.
std::vector<Pieces> Group(const Pieces& pieces, std::uint64_t requests, std::uint64_t room,
                          const std::function<PieceSize(const Piece&)>& size_of);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CUT_H_
