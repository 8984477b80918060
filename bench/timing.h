// Times contenders on a machine that other programs use, too: the contenders take turns, and medians count.
#ifndef SLOTWISE_BENCH_TIMING_H_
#define SLOTWISE_BENCH_TIMING_H_

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"

namespace slotwise::bench {

template <class Work>
double SecondsOf(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the number of calls to a device that are timed as one run. Calls to a GPU are launched ahead, as a
// trainer's are, so that the host's delay in noticing the end of a call does not count.
inline int CallsInARow(const Device& device) { return device.SharesHostMemory() ? 1 : 8; }

// A contender: run() does its work once and returns the seconds.
struct Contender {
  std::string name;
  std::function<double()> run;
  std::vector<double> seconds;  // of each timed run
};

// Runs each contender once to warm up, then all of them in turn, `repeats` times. Pauses before each run,
// until the previous contender's threads, which spin for a while, are asleep.
void TakeTurns(int repeats, std::span<Contender> contenders);

// Returns the value below which the share q of the samples lies. REQUIRES: !samples.empty().
double Quantile(std::vector<double> samples, double q);

// Returns the median of a[i] / b[i]. The runs of one repeat are close in time, so a change of the machine's
// load affects both. REQUIRES: a.size() == b.size() > 0.
double MedianRatio(std::span<const double> a, std::span<const double> b);

// Collective. Returns the largest value of all ranks.
double MaxOverRanks(Collective& collective, double mine);

// Collective. Starts work on all ranks together, and returns the seconds until the last rank has finished it.
template <class Work>
double SecondsOfAll(Collective& collective, Work&& work) {
  MaxOverRanks(collective, 0);  // waits for all ranks
  return MaxOverRanks(collective, SecondsOf(work));
}

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_TIMING_H_
