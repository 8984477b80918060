#include "server/counters/durability_counters.h"

#include <algorithm>

namespace slotwise {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

void JournalCounters::Read(JournalStats& stats) const {
  stats.written_bytes = written_bytes_.load(kRelaxed);
  stats.appended_round = appended_round_.load(kRelaxed);
  stats.syncs = syncs_.Read();
}

void CheckpointCounters::Begin(const Written& newest, SteadyTime since) {
  newest_bytes_.store(newest.bytes, kRelaxed);
  newest_rows_.store(newest.rows, kRelaxed);
  newest_since_.store(since.time_since_epoch().count(), kRelaxed);
  on_.store(true, std::memory_order_release);
}

void CheckpointCounters::NoteBegun(SteadyTime now) {
  begun_ = now;
  under_way_.store(true, kRelaxed);
}

void CheckpointCounters::CountWritten(const Written& checkpoint, SteadyTime now) {
  written_.fetch_add(1, kRelaxed);
  newest_bytes_.store(checkpoint.bytes, kRelaxed);
  newest_rows_.store(checkpoint.rows, kRelaxed);
  newest_since_.store(begun_.time_since_epoch().count(), kRelaxed);
  durations_.Count(now - begun_);
}

void CheckpointCounters::CountFailed() {
  failed_.fetch_add(1, kRelaxed);
  NoteEnded();
}

CheckpointStats CheckpointCounters::Read(SteadyTime now) const {
  CheckpointStats stats{.written = written_.load(kRelaxed),
                        .failed = failed_.load(kRelaxed),
                        .unreadable = unreadable_.load(kRelaxed),
                        .under_way = under_way_.load(kRelaxed),
                        .newest_bytes = newest_bytes_.load(kRelaxed),
                        .newest_rows = newest_rows_.load(kRelaxed),
                        .durations = durations_.Read()};
  const SteadyTime since{SteadyTime::duration(newest_since_.load(kRelaxed))};
  if (changed_.load(kRelaxed)) stats.age = std::max(now - since, SteadyTime::duration(0));
  return stats;
}

}  // namespace slotwise
