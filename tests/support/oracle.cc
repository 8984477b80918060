#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace slotwise::test {

std::uint64_t OracleMix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53;
  x ^= x >> 33;
  return x;
}

std::uint32_t OracleBucket(std::uint64_t key) { return static_cast<std::uint32_t>(OracleMix64(key) >> 52); }

std::array<std::uint32_t, 4> OraclePhilox(std::array<std::uint32_t, 4> counter,
                                          std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * counter[2];
    const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    counter = {high(second) ^ counter[1] ^ key[0], low(second), high(first) ^ counter[3] ^ key[1],
               low(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

float OracleFirstValue(const InitializerOptions& initializer, std::uint64_t key, std::uint32_t j) {
  const auto words = OraclePhilox(
      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32), j / 4, 0},
      {static_cast<std::uint32_t>(initializer.seed), static_cast<std::uint32_t>(initializer.seed >> 32)});
  const float u = static_cast<float>(words[j % 4] >> 8) * 0x1p-24F;
  return initializer.low + u * (initializer.high - initializer.low);
}

float OracleBlockedSum(std::vector<float> terms) {
  if (terms.empty()) {
    return 0.0F;
  }
  while (terms.size() > 1) {
    std::vector<float> sums;
    for (std::size_t begin = 0; begin < terms.size(); begin += 32) {
      float sum = terms[begin];
      for (std::size_t i = begin + 1; i < std::min(begin + 32, terms.size()); ++i) {
        sum += terms[i];
      }
      sums.push_back(sum);
    }
    terms = sums;
  }
  return terms[0];
}

Oracle::Oracle(const TableOptions& options, std::vector<int> owner_of_bucket)
    : options_(options), owner_of_bucket_(std::move(owner_of_bucket)) {
  for (const int owner : owner_of_bucket_) {
    ranks_ = std::max(ranks_, owner + 1);
  }
}

int Oracle::OwnerOf(std::uint64_t key) const {
  return owner_of_bucket_.empty() ? 0 : owner_of_bucket_[OracleBucket(key)];
}

bool Oracle::InsertAbsentKeys(const Batch& batch) {
  std::set<std::uint64_t> absent;
  for (const Key key : batch.keys) {
    if (!rows_.contains(Value(key))) {
      absent.insert(Value(key));
    }
  }
  if (rows_.size() + absent.size() > options_.max_rows) {
    return false;
  }
  for (const std::uint64_t key : absent) {
    Row& row = rows_[key];
    for (std::uint32_t j = 0; j < options_.dim; ++j) {
      row.values.push_back(OracleFirstValue(options_.initializer, key, j));
    }
    const bool adagrad = options_.optimizer.kind == OptimizerKind::kAdaGrad;
    row.first_state.assign(options_.dim, adagrad ? options_.optimizer.initial_accumulator : 0.0F);
    row.second_state.assign(options_.dim, 0.0F);
  }
  return true;
}

void Oracle::AddBagOfRank(const Batch& batch, std::uint32_t bag, int rank, float* partial) const {
  for (std::uint32_t i = batch.offsets[bag]; i < batch.offsets[bag + 1]; ++i) {
    const std::uint64_t key = Value(batch.keys[i]);
    const auto found = rows_.find(key);
    if (found == rows_.end() || OwnerOf(key) != rank) {
      continue;
    }
    for (std::uint32_t j = 0; j < options_.dim; ++j) {
      partial[j] += found->second.values[j];
    }
  }
}

std::optional<std::vector<float>> Oracle::Lookup(const Batch& batch, LookupMode mode) {
  if (mode == LookupMode::kTrain && !InsertAbsentKeys(batch)) {
    return std::nullopt;
  }
  std::vector<float> pooled(std::size_t{batch.bags()} * options_.dim);
  for (std::uint32_t b = 0; b < batch.bags(); ++b) {
    float* sum = &pooled[std::size_t{b} * options_.dim];
    AddBagOfRank(batch, b, 0, sum);
    for (int rank = 1; rank < ranks_; ++rank) {
      std::vector<float> partial(options_.dim, 0.0F);
      AddBagOfRank(batch, b, rank, partial.data());
      for (std::uint32_t j = 0; j < options_.dim; ++j) {
        sum[j] += partial[j];
      }
    }
    if (options_.combiner == Combiner::kMean && batch.size(b) > 0) {
      for (std::uint32_t j = 0; j < options_.dim; ++j) {
        sum[j] /= static_cast<float>(batch.size(b));
      }
    }
  }
  return pooled;
}

bool Oracle::Push(const Batch& batch, const std::vector<float>& gradients) {
  if (!InsertAbsentKeys(batch)) {
    return false;
  }
  ++step_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> bags_of_key;  // one entry an occurrence, in batch order
  for (std::uint32_t b = 0; b < batch.bags(); ++b) {
    for (std::uint32_t i = batch.offsets[b]; i < batch.offsets[b + 1]; ++i) {
      bags_of_key[Value(batch.keys[i])].push_back(b);
    }
  }
  for (const auto& [key, bags] : bags_of_key) {
    for (std::uint32_t j = 0; j < options_.dim; ++j) {
      std::vector<float> terms;
      for (const std::uint32_t b : bags) {
        const float g = gradients[std::size_t{b} * options_.dim + j];
        terms.push_back(options_.combiner == Combiner::kMean ? g / static_cast<float>(batch.size(b)) : g);
      }
      UpdateElement(rows_.at(key), j, OracleBlockedSum(std::move(terms)));
    }
  }
  return true;
}

void Oracle::UpdateElement(Row& row, std::uint32_t j, float g) const {
  const OptimizerOptions& o = options_.optimizer;
  float& w = row.values[j];
  switch (o.kind) {
    case OptimizerKind::kSgd: {
      w -= o.learning_rate * g;
      break;
    }
    case OptimizerKind::kAdaGrad: {
      float& s = row.first_state[j];
      s += g * g;
      w -= (o.learning_rate * g) / (std::sqrt(s) + o.epsilon);
      break;
    }
    case OptimizerKind::kAdam: {
      const auto t = static_cast<double>(step_);
      const auto rate =
          static_cast<float>(double{o.learning_rate} * std::sqrt(1 - std::pow(double{o.beta2}, t)) /
                             (1 - std::pow(double{o.beta1}, t)));
      float& m = row.first_state[j];
      float& v = row.second_state[j];
      m = o.beta1 * m + (1.0F - o.beta1) * g;
      v = o.beta2 * v + (1.0F - o.beta2) * (g * g);
      w -= (rate * m) / (std::sqrt(v) + o.epsilon);
      break;
    }
  }
}

}  // namespace slotwise::test
