#include "client/cpp/cut.h"

#include <algorithm>
#include <utility>

namespace slotwise::client {
namespace {

// A request's size in bytes. Fewer than the least are not worth a request; gRPC moves 1 to 4 MiB fastest.
constexpr std::uint64_t kLeastRequest = 64 << 10;
constexpr std::uint64_t kGoodRequest = 1 << 20;
constexpr std::uint64_t kLargestRequest = 4 << 20;

constexpr std::uint64_t DivideUp(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }

}  // namespace

std::uint64_t PartBytes(const BatchView& batch, std::uint32_t slots, SampleRange samples) {
  const std::uint64_t first = samples.first * slots;
  const std::uint64_t last = samples.last * slots;
  const std::uint64_t key_bytes = sizeof(Key) + (batch.weights.empty() ? 0 : sizeof(float));
  if (batch.offsets.empty()) return key_bytes * (last - first);
  return key_bytes * (batch.offsets[last] - batch.offsets[first]) +
         sizeof(std::uint32_t) * (last - first + 1);
}

CutCounts CountsFor(std::span<const BatchSize> batches, std::uint64_t ranks, std::uint64_t channels) {
  BatchSize all;
  BatchSize largest;
  std::uint64_t with_samples = 0;
  for (const BatchSize& batch : batches) {
    if (batch.samples == 0) continue;
    ++with_samples;
    all.samples += batch.samples;
    all.bytes += batch.bytes;
    largest.samples = std::max(largest.samples, batch.samples);
    largest.bytes = std::max(largest.bytes, batch.bytes);
  }
  if (with_samples == 0) return {};
  std::uint64_t wanted = all.bytes >= ranks * channels * kGoodRequest ? ranks * channels : ranks;
  wanted = std::max(wanted, DivideUp(all.bytes, kLargestRequest));
  wanted = DivideUp(wanted, ranks) * ranks;  // every rank gets the same number
  const std::uint64_t most = std::min({wanted, all.bytes / kLeastRequest, all.samples});
  const std::uint64_t requests = std::max<std::uint64_t>(1, most);
  const std::uint64_t parts =
      std::max(DivideUp(requests, with_samples), DivideUp(largest.bytes, kLargestRequest));
  return {requests, std::min(parts, largest.samples)};
}

std::vector<SampleRange> EvenParts(std::uint64_t samples, std::uint64_t parts) {
  std::vector<SampleRange> even(parts);
  for (std::uint64_t i = 0; i < parts; ++i) even[i] = {samples * i / parts, samples * (i + 1) / parts};
  return even;
}

std::vector<SampleRange> HalveUntilFit(const std::vector<SampleRange>& parts,
                                       const std::function<bool(SampleRange)>& fits) {
  std::vector<SampleRange> fitting;
  std::vector<SampleRange> waiting(parts.rbegin(), parts.rend());
  while (!waiting.empty()) {
    const SampleRange part = waiting.back();
    waiting.pop_back();
    if (part.size() <= 1 || fits(part)) {
      fitting.push_back(part);
      continue;
    }
    const std::uint64_t middle = (part.first + part.last) / 2;
    waiting.push_back({middle, part.last});
    waiting.push_back({part.first, middle});
  }
  return fitting;
}

std::vector<Pieces> Group(const Pieces& pieces, std::uint64_t requests, std::uint64_t room,
                          const std::function<PieceSize(const Piece&)>& size_of) {
  std::uint64_t weight = 0;
  for (const Piece& piece : pieces) weight += size_of(piece).weight;
  weight = std::max<std::uint64_t>(1, weight);
  std::vector<Pieces> groups;
  std::uint64_t before = 0;      // the weight of the pieces before this one
  std::uint64_t latest = 0;      // the place of the last group among `requests` even ones
  std::uint64_t in_message = 0;  // the bytes of the last group
  for (const Piece& piece : pieces) {
    const PieceSize size = size_of(piece);
    // A piece goes where its middle lies when all pieces lie in a row and the row is cut evenly.
    const std::uint64_t place = std::min((2 * before + size.weight) * requests / (2 * weight), requests - 1);
    if (groups.empty() || place != latest || in_message + size.in_message > room) {
      groups.emplace_back();
      in_message = 0;
    }
    groups.back().push_back(piece);
    before += size.weight;
    in_message += size.in_message;
    latest = place;
  }
  return groups;
}

}  // namespace slotwise::client
