#include "tests/sim/model_table.h"

#include <bit>
#include <set>

namespace slotwise::sim {
namespace {

std::vector<int> Owners(int ranks) {
  std::vector<int> owners(kBuckets);
  for (std::uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    owners[bucket] = static_cast<int>(bucket * static_cast<std::uint32_t>(ranks) / kBuckets);
  }
  return owners;
}

}  // namespace

ModelTable::ModelTable(const TableOptions& options, int ranks, DataType partials, const RankLimit& limit)
    : made_(options), options_(options), ranks_(ranks), limit_(limit), oracle_(options, Owners(ranks)) {
  if (ranks == 1) return;
  oracle_.RoundPartialSums(partials);
  LimitRanks();
}

void ModelTable::LimitRanks() {
  if (ranks_ == 1) return;
  // A share is that of the rank with the most buckets. Both divisions round up.
  const std::uint64_t buckets = (kBuckets - 1) / static_cast<std::uint64_t>(ranks_) + 1;
  const std::uint64_t share = (options_.max_rows * buckets - 1) / kBuckets + 1;
  oracle_.LimitRanks((share * limit_.percent - 1) / 100 + 1 + limit_.slack);
}

bool ModelTable::Alter(const TableAlteration& by, bool& fits) {
  TableOptions to = options_;
  if (by.max_rows) to.max_rows = *by.max_rows;
  if (by.eviction) to.eviction = *by.eviction;
  if (by.ttl_steps) to.ttl_steps = *by.ttl_steps;
  if (by.admission) to.admission = *by.admission;
  fits = to.max_rows >= options_.max_rows || to.max_rows >= oracle_.rows().size();
  if (to == options_ || !fits) return false;
  options_ = to;
  oracle_.Alter(to);
  LimitRanks();
  if (to.ttl_steps == 0) swept_ = 0;
  return true;
}

void ModelTable::SetLearningRate(float rate) {
  options_.optimizer.learning_rate = rate;
  oracle_.SetLearningRate(rate);
}

float ModelTable::NextLearningRate() const { return LearningRateOfStep(options_.optimizer, steps() + 1); }

bool ModelTable::Push(const test::Batch& batch, const std::vector<float>& gradients,
                      std::optional<float> rate) {
  const float base = options_.optimizer.learning_rate;
  oracle_.SetLearningRate(rate.value_or(NextLearningRate()));
  const bool applied = oracle_.Push(batch, gradients);
  oracle_.SetLearningRate(base);
  return applied;
}

bool ModelTable::IsDue() const {
  const std::uint64_t ttl = options_.ttl_steps;
  if (ttl == 0) return false;
  const std::uint64_t interval = ttl < 16 ? 1 : ttl / 16;
  return steps() / interval != swept_ / interval;
}

std::uint64_t ModelTable::Sweep(bool has_memory) {
  swept_ = steps();
  return has_memory ? oracle_.Sweep() : 0;
}

int ModelTable::OwnerOf(std::uint64_t key) const {
  return static_cast<int>(test::OracleBucket(key) * static_cast<std::uint32_t>(ranks_) / kBuckets);
}

DigestSums ModelTable::Digest() const {
  DigestSums sums;
  for (const auto& [key, row] : oracle_.rows()) {
    std::uint64_t low = test::OracleMix64(key ^ 0x9E3779B97F4A7C15);
    std::uint64_t high = test::OracleMix64(key ^ 0xC2B2AE3D27D4EB4F);
    for (const float value : RecordOf(key)) {
      const auto word = std::bit_cast<std::uint32_t>(value);
      low = test::OracleMix64(low + word + 1);
      high = test::OracleMix64(high ^ (word + std::uint64_t{1}));
    }
    sums.low += low;
    sums.high += high;
  }
  return sums;
}

std::vector<std::uint64_t> ModelTable::KeysOf(int rank) const {
  std::vector<std::uint64_t> keys;
  for (const auto& [key, row] : oracle_.rows()) {
    if (OwnerOf(key) == rank) keys.push_back(key);
  }
  return keys;
}

std::vector<float> ModelTable::RecordOf(std::uint64_t key) const {
  const test::OracleRow& row = oracle_.rows().at(key);
  std::vector<float> record = row.values;
  record.insert(record.end(), row.state.begin(), row.state.end());
  return record;
}

std::uint64_t ModelTable::CountNew(const test::Batch& batch) const {
  std::set<std::uint64_t> absent;
  for (const Key key : batch.keys) {
    if (!oracle_.rows().contains(Value(key))) absent.insert(Value(key));
  }
  return absent.size();
}

}  // namespace slotwise::sim
