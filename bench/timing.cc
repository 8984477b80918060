#include "bench/timing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <thread>
#include <utility>

namespace slotwise::bench {

void TakeTurns(int repeats, std::span<Contender> contenders) {
  constexpr std::chrono::milliseconds kPause{10};
  for (int round = 0; round <= repeats; ++round) {
    for (Contender& contender : contenders) {
      std::this_thread::sleep_for(kPause);
      const double seconds = contender.run();
      if (round > 0) contender.seconds.push_back(seconds);
    }
  }
}

double Quantile(std::vector<double> samples, double q) {
  const auto at = std::lround(q * static_cast<double>(samples.size() - 1));
  std::ranges::nth_element(samples, samples.begin() + at);
  return samples[static_cast<std::size_t>(at)];
}

double MedianRatio(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Quantile(std::move(ratios), 0.5);
}

double MaxOverRanks(Collective& collective, double mine) {
  std::vector<double> all(static_cast<std::size_t>(collective.size()));
  collective.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return std::ranges::max(all);
}

}  // namespace slotwise::bench
