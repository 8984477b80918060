#include "server/counters/table_counters.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace slotwise {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// There is only one writer, so a sum needs no locked instruction.
void Increase(std::atomic<std::uint64_t>& count, std::uint64_t more) {
  if (more > 0) count.store(count.load(kRelaxed) + more, kRelaxed);
}

}  // namespace

void TableCounters::Begin(const TableState& state) {
  rows_.store(state.rows, kRelaxed);
  step_keys_before_ = state.step_keys;
  step_rows_before_ = state.step_rows;
  refused_keys_before_ = state.refused_keys;
  probes_before_ = state.probes;
  Note(state);
}

void TableCounters::Note(const TableState& state) {
  const std::uint64_t came = state.rows + std::exchange(gone_since_, 0);  // or stayed
  const std::uint64_t before = rows_.load(kRelaxed);
  if (came > before) Increase(new_rows_, came - before);
  if (came < before) Increase(erased_rows_, before - came);
  rows_.store(state.rows, kRelaxed);
  cells_.store(state.cells, kRelaxed);
  bytes_.store(state.bytes, kRelaxed);
  steps_.store(state.steps, kRelaxed);
  all_bags_.store(state.all_bags, kRelaxed);
  owned_bags_.store(state.owned_bags, kRelaxed);
  step_keys_.store(state.step_keys - step_keys_before_, kRelaxed);
  step_rows_.store(state.step_rows - step_rows_before_, kRelaxed);
  refused_keys_.store(state.refused_keys - refused_keys_before_, kRelaxed);
  const ProbeLengths probes = state.probes.Since(probes_before_);
  for (std::size_t b = 0; b < probes_.size(); ++b) probes_[b].store(probes.buckets[b], kRelaxed);
  probes_sum_.store(probes.sum, kRelaxed);
}

void TableCounters::CountGone(Count& counter, std::uint64_t rows) {
  Increase(counter, rows);
  gone_since_ += rows;
}

void TableCounters::CountEvictedAges(const EvictedAges& mine, std::uint64_t youngest) {
  for (std::size_t b = 0; b < evicted_ages_.size(); ++b) Increase(evicted_ages_[b], mine.buckets[b]);
  Increase(evicted_ages_sum_, mine.sum);
  youngest_evicted_.store(youngest, kRelaxed);
}

EvictedAges TableCounters::ReadEvictedAges() const {
  EvictedAges ages;
  ages.sum = evicted_ages_sum_.load(kRelaxed);
  for (std::size_t b = 0; b < evicted_ages_.size(); ++b) ages.buckets[b] = evicted_ages_[b].load(kRelaxed);
  return ages;
}

ProbeLengths TableCounters::ReadProbes() const {
  ProbeLengths probes{.buckets = {}, .sum = probes_sum_.load(kRelaxed)};
  for (std::size_t b = 0; b < probes_.size(); ++b) probes.buckets[b] = probes_[b].load(kRelaxed);
  return probes;
}

void TableCounters::Add(Batches& batches, const BatchCounts& more) {
  Increase(batches.samples, more.samples);
  Increase(batches.keys, more.keys);
}

BatchCounts TableCounters::ReadOf(const Batches& batches) {
  return {.samples = batches.samples.load(kRelaxed), .keys = batches.keys.load(kRelaxed)};
}

void TableCounters::CountLookups(const BatchCounts& more) { Add(lookups_, more); }
void TableCounters::CountPushes(const BatchCounts& more) { Add(pushes_, more); }

void TableCounters::CountGradients(const SquareSum& more) {
  const double sum = gradient_squares_.load(kRelaxed) + more.squares;
  gradient_squares_.store(std::min(sum, std::numeric_limits<double>::max()), kRelaxed);
  Increase(gradient_numbers_, more.numbers);
}

TableStats TableCounters::Read() const {
  const std::uint64_t youngest = youngest_evicted_.load(kRelaxed);
  return {.name = name_,
          .max_rows = max_rows_.load(kRelaxed),
          .evicts = evicts_.load(kRelaxed),
          .state = {.rows = rows_.load(kRelaxed),
                    .cells = cells_.load(kRelaxed),
                    .bytes = bytes_.load(kRelaxed),
                    .steps = steps_.load(kRelaxed),
                    .all_bags = all_bags_.load(kRelaxed),
                    .owned_bags = owned_bags_.load(kRelaxed),
                    .step_keys = step_keys_.load(kRelaxed),
                    .step_rows = step_rows_.load(kRelaxed),
                    .refused_keys = refused_keys_.load(kRelaxed),
                    .probes = ReadProbes()},
          .new_rows = new_rows_.load(kRelaxed),
          .erased_rows = erased_rows_.load(kRelaxed),
          .evicted_rows = evicted_rows_.load(kRelaxed),
          .expired_rows = expired_rows_.load(kRelaxed),
          .evicted_ages = ReadEvictedAges(),
          .youngest_evicted = youngest == kNone ? std::nullopt : std::optional(youngest),
          .lookups = ReadOf(lookups_),
          .pushes = ReadOf(pushes_),
          .non_finite_pushes = non_finite_pushes_.load(kRelaxed),
          .hot_keys = hot_keys_.Read(),
          .staleness = staleness_.Read(),
          .gradients = {.squares = gradient_squares_.load(kRelaxed),
                        .numbers = gradient_numbers_.load(kRelaxed)}};
}

}  // namespace slotwise
