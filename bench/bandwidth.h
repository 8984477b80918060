// What this machine's memory does: the measure of every floor.
#ifndef SLOTWISE_BENCH_BANDWIDTH_H_
#define SLOTWISE_BENCH_BANDWIDTH_H_

namespace slotwise::bench {

// Host memory, bytes read and written a second, by copies of 256 MiB with `threads` threads; the best of several.
double HostCopyBandwidth(int threads);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_BANDWIDTH_H_
