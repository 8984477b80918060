// Times that can be compared on a machine that others use too: contenders take turns, and medians count.
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

// How many calls to a device are timed as one run: a GPU's are launched ahead of it, as a trainer's are, so that the time
// it takes to hear of the end of one does not count.
inline int CallsInARow(const Device& device) { return device.SharesHostMemory() ? 1 : 8; }

// One thing that is timed: run() does it once and says how many seconds it took.
struct Contender {
  std::string name;
  std::function<double()> run;
  std::vector<double> seconds;  // of each timed run
};

// Runs each once to warm up, then `repeats` rounds of all of them in turn. Pauses before each, so that the threads of
// the one before (which spin for a while) are asleep.
void TakeTurns(int repeats, std::span<Contender> contenders);

// The value below which the share q of the samples lies. REQUIRES: !samples.empty().
double Quantile(std::vector<double> samples, double q);

// Collective. The largest of the ranks' values.
double MaxOverRanks(Collective& collective, double mine);

// Collective. Work that all ranks begin together, timed until the last has ended it.
template <class Work>
double SecondsOfAll(Collective& collective, Work&& work) {
  MaxOverRanks(collective, 0);  // waits for all
  return MaxOverRanks(collective, SecondsOf(work));
}

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_TIMING_H_
