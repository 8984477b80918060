#include "client/cpp/cut.h"

#include <algorithm>
#include <utility>

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

std::vector<Share> Cut(std::span<const std::uint64_t> samples, std::uint64_t batch_bytes, std::uint64_t ranks,
                       std::uint64_t channels) {
  std::uint64_t wanted = batch_bytes >= ranks * channels * kGoodPart ? ranks * channels : ranks;
  wanted = std::max(wanted, DivideUp(batch_bytes, kLargestPart));
  wanted = DivideUp(wanted, ranks) * ranks;  // every rank gets the same number
  const std::uint64_t most = std::min({wanted, batch_bytes / kLeastPart, std::ranges::max(samples)});
  return EvenShares(samples, std::max<std::uint64_t>(1, most));
}

std::vector<Share> EvenShares(std::span<const std::uint64_t> samples, std::uint64_t parts) {
  std::vector<Share> shares(parts);
  for (std::uint64_t i = 0; i < parts; ++i) {
    for (const std::uint64_t count : samples) {
      shares[i].push_back({count * i / parts, count * (i + 1) / parts});
    }
  }
  return shares;
}

std::vector<Share> HalveUntilFit(const std::vector<Share>& shares,
                                 const std::function<bool(const Share&)>& fits) {
  std::vector<Share> fitting;
  std::vector<Share> waiting(shares.rbegin(), shares.rend());
  while (!waiting.empty()) {
    Share share = std::move(waiting.back());
    waiting.pop_back();
    const auto is_one = [](const SampleRange& samples) { return samples.size() <= 1; };
    if (std::ranges::all_of(share, is_one) || fits(share)) {
      fitting.push_back(std::move(share));
      continue;
    }
    Share second = share;
    for (std::size_t i = 0; i < share.size(); ++i) {
      second[i].first = share[i].last = (share[i].first + share[i].last) / 2;
    }
    waiting.push_back(std::move(second));
    waiting.push_back(std::move(share));
  }
  return fitting;
}

}  // namespace slotwise::client
