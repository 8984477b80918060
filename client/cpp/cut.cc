#include "client/cpp/cut.h"

#include <algorithm>

namespace slotwise::client {
namespace {

// A part's size in bytes. A part below the least is not worth a request; gRPC moves 1 to 4 MiB fastest.
constexpr std::uint64_t kLeastPart = 64 << 10;
constexpr std::uint64_t kGoodPart = 1 << 20;
constexpr std::uint64_t kLargestPart = 4 << 20;

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

std::vector<SampleRange> Cut(std::uint64_t samples, std::uint64_t batch_bytes, std::uint64_t ranks,
                             std::uint64_t channels) {
  std::uint64_t wanted = batch_bytes >= ranks * channels * kGoodPart ? ranks * channels : ranks;
  wanted = std::max(wanted, DivideUp(batch_bytes, kLargestPart));
  wanted = DivideUp(wanted, ranks) * ranks;  // every rank gets the same number
  const std::uint64_t most = std::min({wanted, batch_bytes / kLeastPart, samples});
  return EvenRanges(samples, std::max<std::uint64_t>(1, most));
}

std::vector<SampleRange> EvenRanges(std::uint64_t samples, std::uint64_t parts) {
  std::vector<SampleRange> ranges(parts);
  for (std::uint64_t i = 0; i < parts; ++i) ranges[i] = {samples * i / parts, samples * (i + 1) / parts};
  return ranges;
}

std::vector<SampleRange> HalveUntilFit(const std::vector<SampleRange>& ranges,
                                       const std::function<std::uint64_t(SampleRange)>& request_bytes,
                                       std::uint64_t limit) {
  std::vector<SampleRange> fitting;
  std::vector<SampleRange> waiting(ranges.rbegin(), ranges.rend());
  while (!waiting.empty()) {
    const SampleRange range = waiting.back();
    waiting.pop_back();
    if (range.size() <= 1 || request_bytes(range) <= limit) {
      fitting.push_back(range);
      continue;
    }
    const std::uint64_t middle = (range.first + range.last) / 2;
    waiting.push_back({middle, range.last});
    waiting.push_back({range.first, middle});
  }
  return fitting;
}

}  // namespace slotwise::client
