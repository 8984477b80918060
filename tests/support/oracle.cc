#include "tests/support/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
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

std::uint64_t OracleSipHash(int compression_rounds, int finalization_rounds,
                            const std::array<std::uint8_t, 16>& key, std::span<const std::uint8_t> message) {
  const auto little_endian = [](std::span<const std::uint8_t> bytes) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) word |= std::uint64_t{bytes[i]} << (8 * i);
    return word;
  };
  const std::uint64_t k0 = little_endian(std::span(key).first(8));
  const std::uint64_t k1 = little_endian(std::span(key).last(8));
  std::uint64_t v[4];
  // The constants are the letters of "somepseudorandomlygeneratedbytes".
  const std::uint64_t letters[4] = {0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261,
                                    0x7465646279746573};
  for (int i = 0; i < 4; ++i) v[i] = letters[i] ^ (i % 2 == 0 ? k0 : k1);

  // One SipRound, step by step in the order of the paper's figure.
  const auto round = [&v] {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = std::rotl(v[1], 13);
    v[3] = std::rotl(v[3], 16);
    v[1] ^= v[0];
    v[3] ^= v[2];
    v[0] = std::rotl(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = std::rotl(v[1], 17);
    v[3] = std::rotl(v[3], 21);
    v[1] ^= v[2];
    v[3] ^= v[0];
    v[2] = std::rotl(v[2], 32);
  };
  const auto take_in = [&](std::uint64_t word) {
    v[3] ^= word;
    for (int i = 0; i < compression_rounds; ++i) round();
    v[0] ^= word;
  };
  const std::size_t length = message.size();
  for (; message.size() >= 8; message = message.subspan(8)) take_in(little_endian(message.first(8)));
  take_in(little_endian(message) | std::uint64_t{length % 256} << 56);
  v[2] ^= 0xFF;
  for (int i = 0; i < finalization_rounds; ++i) round();
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

std::uint32_t OracleBucket(std::uint64_t key) { return static_cast<std::uint32_t>(OracleMix64(key) >> 52); }

std::array<std::uint32_t, 4> OraclePhilox(std::array<std::uint32_t, 4> counter,
                                          std::array<std::uint32_t, 2> key, int rounds) {
  for (int round = 0; round < rounds; ++round) {
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
  if (initializer.kind == InitializerKind::kConstant) {
    return initializer.mean;
  }
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

float OracleRounded(float value, DataType type) {
  if (type == DataType::kFloat32 || !std::isfinite(value) || value == 0.0F) {
    return value;
  }
  const int digits = type == DataType::kFloat16 ? 11 : 8;
  const int smallest_exponent = type == DataType::kFloat16 ? -14 : -126;
  const double largest = type == DataType::kFloat16 ? 65504.0 : 0x1.FEp127;
  // A double holds all values here exactly, and rounds a quotient to a whole number with ties to even.
  const auto exact = static_cast<double>(value);
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), smallest_exponent) - (digits - 1));
  const double rounded = std::copysign(std::nearbyint(exact / unit) * unit, exact);
  if (std::fabs(rounded) > largest) {
    return std::copysign(std::numeric_limits<float>::infinity(), value);
  }
  return static_cast<float>(rounded);
}

float OracleRoundedByChance(float value, DataType type, std::uint64_t seed, std::uint64_t key,
                            std::uint64_t step, std::size_t j) {
  if (!std::isfinite(value) || value == 0.0F) return value;
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const std::uint64_t draw = j / 64 * 8 + j % 32 / 4;
  const auto words = OraclePhilox({low(key), high(key), low(draw + 512 * (step >> 32)), low(step)},
                                  {low(seed), high(seed)}, 7);
  const std::uint32_t word = words[j / 32 % 2 * 2 + j % 4 / 2];
  const std::uint32_t chance = j % 2 == 0 ? word % 65536 : word / 65536;
  const int digits = type == DataType::kFloat16 ? 11 : 8;
  const int smallest_exponent = type == DataType::kFloat16 ? -14 : -126;
  const double largest = type == DataType::kFloat16 ? 65504.0 : 0x1.FEp127;
  const double exact = std::fabs(static_cast<double>(value));
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), smallest_exponent) - (digits - 1));
  double units = std::floor(exact / unit);
  if (std::floor((exact / unit - units) * 65536) + chance >= 65536) units += 1;
  if (units * unit > largest) return std::copysign(std::numeric_limits<float>::infinity(), value);
  return std::copysign(static_cast<float>(units * unit), value);
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

void Oracle::GiveFirstValues(std::uint64_t key, std::vector<float> values) {
  given_first_values_[key] = std::move(values);
}

std::vector<float> Oracle::FirstValuesOf(std::uint64_t key) const {
  if (options_.initializer.kind == InitializerKind::kNormal) {
    return given_first_values_.at(key);
  }
  std::vector<float> values(options_.dim);
  for (std::uint32_t j = 0; j < options_.dim; ++j) {
    values[j] = OracleRounded(OracleFirstValue(options_.initializer, key, j), options_.row_dtype);
  }
  return values;
}

float Oracle::Stored(float weight, std::uint64_t key, std::size_t j) const {
  if (options_.row_dtype == DataType::kFloat32) return weight;
  if (options_.rounding == Rounding::kNearest) return OracleRounded(weight, options_.row_dtype);
  return OracleRoundedByChance(weight, options_.row_dtype, options_.initializer.seed, key, step_, j);
}

float Oracle::Divisor(const Batch& batch, std::uint32_t b) const {
  float sum = 0.0F;
  float squares = 0.0F;
  for (std::uint32_t i = batch.offsets[b]; i < batch.offsets[b + 1]; ++i) {
    sum = sum + batch.weight(i);
    squares = squares + batch.weight(i) * batch.weight(i);
  }
  switch (options_.combiner) {
    case Combiner::kSum:
    case Combiner::kNone:
      break;
    case Combiner::kMean:
      return sum;
    case Combiner::kSqrtn:
      return std::sqrt(squares);
  }
  return 1.0F;
}

std::uint64_t Oracle::MostRows(float share) const {
  const auto millionths = static_cast<std::uint64_t>(std::llround(1e6 * static_cast<double>(share)));
  return options_.max_rows * millionths / 1'000'000;
}

// A score is the last two floats of a row's state, by their bits.
void Oracle::SetScore(Row& row, std::uint64_t score) const {
  if (!options_.has_scores()) return;
  const std::size_t begin = StateFloats(options_.optimizer.kind, options_.dim);
  row.state.resize(begin + 2);
  row.state[begin] = std::bit_cast<float>(static_cast<std::uint32_t>(score));
  row.state[begin + 1] = std::bit_cast<float>(static_cast<std::uint32_t>(score >> 32));
}

// By the words of docs/semantics.md. A counted score is count · 2^36 + step.
std::uint64_t Oracle::CountNow(std::uint64_t score, std::uint64_t now) const {
  std::uint64_t count = score / kStepsOfScore;
  const std::uint64_t step = score % kStepsOfScore, half_life = options_.eviction.half_life_steps;
  for (std::uint64_t at = half_life == 0 ? now : step / half_life + 1;
       half_life > 0 && at * half_life <= now && count > 0; ++at)
    count /= 2;
  return count;
}

void Oracle::Touch(Row& row, std::uint64_t occurrences) const {
  if (!Counts()) return SetScore(row, step_);
  const std::uint64_t count = CountNow(ScoreIn(row), step_) + occurrences;
  SetScore(row, std::min<std::uint64_t>(count, (1 << 27) - 1) * kStepsOfScore + step_);
}

std::uint64_t Oracle::ScoreIn(const Row& row) {
  const auto word = [&row](std::size_t from_end) {
    return std::uint64_t{std::bit_cast<std::uint32_t>(row.state[row.state.size() - from_end])};
  };
  return word(2) | word(1) << 32;
}

std::uint64_t Oracle::AgeOf(const Row& row) const {
  const std::uint64_t score = ScoreIn(row), touched = Counts() ? score % kStepsOfScore : score;
  return step_ - std::min(step_, touched);
}

std::vector<std::uint64_t> Oracle::Ages() const {
  std::vector<std::uint64_t> ages;
  for (const auto& [key, row] : rows_) ages.push_back(AgeOf(row));
  return ages;
}

std::vector<std::uint64_t> Oracle::Occurred() const {
  std::vector<std::uint64_t> counts;
  for (const auto& [key, row] : rows_) counts.push_back(OrderOf(row) / kStepsOfScore);
  return counts;
}

// Returns what orders a row before the tie.
std::uint64_t Oracle::OrderOf(const Row& row) const {
  const std::uint64_t score = ScoreIn(row);
  if (!Counts()) return score;
  const std::uint64_t step = score % kStepsOfScore;
  const std::uint64_t count = CountNow(score < kStepsOfScore ? score + kStepsOfScore : score, step_ + 1);
  return count * kStepsOfScore + (options_.eviction.score == ScoreKind::kStepLfu ? step : 0);
}

std::vector<std::uint64_t> Oracle::RowsToEvict(const Batch& batch, std::uint64_t absent) const {
  if (!options_.evicts() || absent == 0 || rows_.size() + absent <= MostRows(options_.eviction.at)) return {};
  std::set<std::uint64_t> own;
  for (const Key key : batch.keys) own.insert(Value(key));
  std::vector<std::array<std::uint64_t, 3>> places;  // score, tie, key
  for (const auto& [key, row] : rows_) {
    if (!own.contains(key)) places.push_back({OrderOf(row), OracleMix64(OracleMix64(key)), key});
  }
  std::ranges::sort(places);
  const std::uint64_t count = rows_.size() + absent - MostRows(options_.eviction.to);
  if (places.size() > count) places.resize(count);
  std::vector<std::uint64_t> keys;
  for (const auto& place : places) keys.push_back(place[2]);
  return keys;
}

// By the words of docs/semantics.md.
bool Oracle::IsAdmitted(std::uint64_t key, std::uint64_t occurrences) const {
  const AdmissionOptions& admission = options_.admission;
  if (admission.kind == AdmissionKind::kProbability) {
    const double drawn =
        std::ldexp(static_cast<double>(OracleMix64(key + OracleMix64(step_ + 1)) >> 11), -53);
    return drawn < static_cast<double>(admission.probability);
  }
  if (HasBlooms()) return occurrences + EstimateOf(key) >= admission.threshold;
  const auto counted = candidates_.find(key);
  return occurrences + (counted == candidates_.end() ? 0 : counted->second.count) >= admission.threshold;
}

Oracle::BlockName Oracle::BlockOf(std::uint64_t key, std::uint64_t counter_mib) {
  const std::uint64_t below_bucket = OracleMix64(key) % (std::uint64_t{1} << 52);
  const std::uint64_t blocks = 4 * counter_mib;
  return {OracleBucket(key), below_bucket / (1 << 20) * blocks / (std::uint64_t{1} << 32)};
}

std::array<std::uint32_t, 3> Oracle::CountersOf(std::uint64_t key) {
  std::uint64_t drawn = OracleMix64(OracleMix64(key));
  std::vector<std::uint32_t> left(45);
  std::iota(left.begin(), left.end(), 0U);
  std::array<std::uint32_t, 3> counters{};
  for (std::uint32_t& counter : counters) {
    const auto at = static_cast<std::ptrdiff_t>(drawn % 65536 * left.size() / 65536);
    counter = left[static_cast<std::size_t>(at)];
    left.erase(left.begin() + at);
    drawn /= 65536;
  }
  return counters;
}

std::uint64_t Oracle::EstimateOf(std::uint64_t key) const {
  const auto found = blocks_.find(BlockOf(key, options_.admission.counter_mib));
  if (found == blocks_.end()) return 0;
  std::uint32_t least = 255;
  for (const std::uint32_t counter : CountersOf(key)) least = std::min(least, found->second.counts[counter]);
  return least;
}

void Oracle::CountInBlocks(const Occurrences& absent) {
  std::map<std::uint64_t, std::uint64_t> raised;  // by key: decided by the counts before the step
  for (const auto& [key, occurrences] : absent)
    raised[key] = std::min<std::uint64_t>(255, EstimateOf(key) + occurrences);
  std::map<BlockName, std::uint64_t> counted;
  for (const auto& [key, occurrences] : absent) {
    const BlockName name = BlockOf(key, options_.admission.counter_mib);
    Block& block = blocks_[name];
    for (const std::uint32_t counter : CountersOf(key))
      block.counts[counter] = std::max(block.counts[counter], static_cast<std::uint32_t>(raised[key]));
    counted[name] += occurrences;
  }
  for (const auto& [name, occurrences] : counted) {
    Block& block = blocks_[name];
    block.tally =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(block.tally + occurrences, (1 << 24) - 1));
    if (block.tally < 6 * options_.admission.threshold) continue;
    for (std::uint32_t& count : block.counts) count /= 2;
    block.tally = block.tally / 2 + block.tally % 2;
  }
}

std::optional<std::vector<std::uint64_t>> Oracle::CandidatesToForget(const Occurrences& absent) const {
  const std::uint64_t most =
      options_.admission.max_keys == 0 ? options_.max_rows : options_.admission.max_keys;
  std::vector<std::uint64_t> fresh, gone;
  for (const auto& [key, occurrences] : absent) {
    if (!candidates_.contains(key)) fresh.push_back(key);
  }
  const std::uint64_t all = candidates_.size() + fresh.size();
  if (!fresh.empty() && all > most) {
    std::vector<std::array<std::uint64_t, 3>> places;  // step, tie, key
    for (const auto& [key, of_key] : candidates_) {
      if (!absent.contains(key)) places.push_back({of_key.step, OracleMix64(OracleMix64(key)), key});
    }
    std::ranges::sort(places);
    places.resize(std::min<std::size_t>(places.size(), all - most * 95 / 100));
    for (const auto& place : places) gone.push_back(place[2]);
    if (all - gone.size() > most) return std::nullopt;
  }
  return gone;
}

bool Oracle::InsertAbsentKeys(const Batch& batch, std::uint64_t steps) {
  std::set<std::uint64_t> absent;
  for (const Key key : batch.keys) {
    if (!rows_.contains(Value(key))) {
      absent.insert(Value(key));
    }
  }
  const std::vector<std::uint64_t> evicted = RowsToEvict(batch, absent.size());
  const std::uint64_t most = options_.evicts() ? MostRows(options_.eviction.at) : options_.max_rows;
  if (!absent.empty() && rows_.size() - evicted.size() + absent.size() > most) {
    return false;
  }
  if (most_rows_of_rank_ && !absent.empty()) {
    std::map<int, std::uint64_t> rows_of_rank;
    for (const auto& [key, row] : rows_) ++rows_of_rank[OwnerOf(key)];
    for (const std::uint64_t key : evicted) --rows_of_rank[OwnerOf(key)];
    for (const std::uint64_t key : absent) ++rows_of_rank[OwnerOf(key)];
    // A rank that has more since max_rows fell keeps them, and gets none.
    for (const std::uint64_t key : absent) {
      if (rows_of_rank[OwnerOf(key)] > *most_rows_of_rank_) return false;
    }
  }
  if (!evicted.empty()) evicted_ages_.emplace_back();
  for (const std::uint64_t key : evicted) {
    evicted_ages_.back().push_back(AgeOf(rows_.at(key)));
    rows_.erase(key);
  }
  evicted_rows_ += evicted.size();
  for (const std::uint64_t key : absent) {
    Row& row = rows_[key] = {FirstValuesOf(key), OracleFirstState(options_.optimizer, options_.dim)};
    SetScore(row, steps + 1);
  }
  return true;
}

void Oracle::AddBagOfRank(const Batch& batch, std::uint32_t bag, int rank, bool or_initial,
                          float* partial) const {
  for (std::uint32_t i = batch.offsets[bag]; i < batch.offsets[bag + 1]; ++i) {
    const std::uint64_t key = Value(batch.keys[i]);
    const auto found = rows_.find(key);
    if (OwnerOf(key) != rank || (found == rows_.end() && !or_initial)) {
      continue;
    }
    const std::vector<float> values = found == rows_.end() ? FirstValuesOf(key) : found->second.values;
    for (std::uint32_t j = 0; j < options_.dim; ++j) {
      partial[j] += batch.weights.empty() ? values[j] : batch.weights[i] * values[j];
    }
  }
}

std::optional<std::vector<float>> Oracle::Lookup(const Batch& batch, LookupMode mode) {
  const bool trains = mode == LookupMode::kTrain;
  const bool or_initial = trains && options_.admits() && options_.admission.absent == AbsentRows::kInitial;
  if (trains && !options_.admits() && !InsertAbsentKeys(batch, step_)) {
    return std::nullopt;
  }
  std::vector<float> pooled(std::size_t{batch.bags()} * options_.dim);
  for (std::uint32_t b = 0; b < batch.bags(); ++b) {
    float* sum = &pooled[std::size_t{b} * options_.dim];
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<float> partial(options_.dim, 0.0F);
      AddBagOfRank(batch, b, rank, or_initial, partial.data());
      for (std::uint32_t j = 0; j < options_.dim; ++j) {
        sum[j] += OracleRounded(partial[j], partials_);
      }
    }
    const float divisor = Divisor(batch, b);
    for (std::uint32_t j = 0; j < options_.dim; ++j) {
      sum[j] = divisor == 0.0F ? 0.0F : sum[j] / divisor;
    }
  }
  return pooled;
}

bool Oracle::Push(const Batch& batch, const std::vector<float>& gradients) {
  Batch counted;
  std::vector<float> divisors;
  for (std::uint32_t b = 0; b < batch.bags(); ++b) {
    divisors.push_back(Divisor(batch, b));
    for (std::uint32_t i = batch.offsets[b]; divisors[b] != 0.0F && i < batch.offsets[b + 1]; ++i) {
      counted.keys.push_back(batch.keys[i]);
    }
  }
  Occurrences absent;
  std::set<std::uint64_t> refused;
  std::vector<std::uint64_t> forgotten;
  if (options_.admits()) {
    for (const Key key : counted.keys) {
      if (!rows_.contains(Value(key))) ++absent[Value(key)];
    }
    for (const auto& [key, occurrences] : absent) {
      if (!IsAdmitted(key, occurrences)) refused.insert(key);
    }
    if (options_.has_candidates() && !HasBlooms()) {
      const auto forgets = CandidatesToForget(absent);
      if (!forgets) return false;
      forgotten = *forgets;
    }
    std::erase_if(counted.keys, [&](Key key) { return refused.contains(Value(key)); });
  }
  if (!InsertAbsentKeys(counted, step_)) {
    return false;
  }
  ++step_;
  for (const std::uint64_t key : forgotten) candidates_.erase(key);
  if (HasBlooms()) CountInBlocks(absent);
  for (const auto& [key, occurrences] : absent) {
    if (refused.contains(key)) refused_keys_ += occurrences;
    if (!options_.has_candidates() || HasBlooms()) continue;
    if (!refused.contains(key)) {
      candidates_.erase(key);
    } else {
      Candidate& candidate = candidates_[key];
      candidate = {std::min<std::uint64_t>(candidate.count + occurrences, (1 << 27) - 1), step_};
    }
  }
  struct Occurrence {
    std::uint32_t bag;
    float weight;
  };
  std::map<std::uint64_t, std::vector<Occurrence>> occurrences;  // in batch order
  for (std::uint32_t b = 0; b < batch.bags(); ++b) {
    if (divisors[b] == 0.0F) {
      continue;  // nothing comes of such a bag, not even a row
    }
    for (std::uint32_t i = batch.offsets[b]; i < batch.offsets[b + 1]; ++i) {
      if (refused.contains(Value(batch.keys[i]))) continue;
      occurrences[Value(batch.keys[i])].push_back({b, batch.weight(i)});
    }
  }
  for (const auto& [key, of_key] : occurrences) {
    std::vector<float> gradient(options_.dim);
    for (std::uint32_t j = 0; j < options_.dim; ++j) {
      std::vector<float> terms;
      for (const auto& [b, weight] : of_key) {
        const float gradient_of_bag = gradients[std::size_t{b} * options_.dim + j];
        terms.push_back(gradient_of_bag * weight / divisors[b]);
      }
      gradient[j] = OracleBlockedSum(std::move(terms));
    }
    OracleUpdate(options_.optimizer, step_, std::move(gradient), rows_.at(key),
                 [&, key = key](float weight, std::size_t j) { return Stored(weight, key, j); });
    Touch(rows_.at(key), of_key.size());
  }
  return true;
}

bool Oracle::Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records,
                    std::uint64_t steps) {
  if (!InsertAbsentKeys(OneKeyABag(keys), std::max(step_, steps))) {
    return false;
  }
  step_ = std::max(step_, steps);
  for (const std::uint64_t key : keys) candidates_.erase(key);
  const std::size_t columns = keys.empty() ? 0 : records.size() / keys.size();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto record = records.begin() + static_cast<std::ptrdiff_t>(i * columns);
    Row& row = rows_.at(keys[i]);
    row.values.assign(record, record + options_.dim);
    for (float& value : row.values) value = OracleRounded(value, options_.row_dtype);
    row.state = OracleFirstState(options_.optimizer, options_.dim);
    SetScore(row, step_ + 1);
    if (columns > options_.dim) {
      row.state.assign(record + options_.dim, record + static_cast<std::ptrdiff_t>(columns));
      if (options_.has_scores() && ScoreOf(row.state.data() + row.state.size() - 2) == kScoreOfNew)
        SetScore(row, step_ + 1);
    }
  }
  return true;
}

void Oracle::Alter(const TableOptions& options) {
  const bool had_scores = options_.has_scores(), counted = Counts(),
             had_candidates = options_.has_candidates();
  const AdmissionOptions admitted = options_.admission;
  const float rate = options_.optimizer.learning_rate;  // that of SetLearningRate
  options_ = options;
  options_.optimizer.learning_rate = rate;
  const std::size_t state = StateFloats(options_.optimizer.kind, options_.dim);
  for (auto& [key, row] : rows_) {
    const std::uint64_t step = !had_scores ? step_ + 1
                               : counted   ? ScoreIn(row) % kStepsOfScore
                                           : ScoreIn(row);
    if (!options_.has_scores()) {
      row.state.resize(state);
    } else if (!had_scores || counted != Counts()) {
      SetScore(row, Counts() ? std::min(step, kStepsOfScore - 2) : step);
    }
  }
  if (!options_.has_candidates() || !had_candidates || admitted.counter != options_.admission.counter ||
      admitted.counter_mib != options_.admission.counter_mib) {
    candidates_.clear();
    blocks_.clear();
  }
  const std::uint64_t most =
      options_.admission.max_keys == 0 ? options_.max_rows : options_.admission.max_keys;
  if (candidates_.size() <= most) return;
  std::vector<std::array<std::uint64_t, 3>> places;  // step, tie, key
  for (const auto& [key, of_key] : candidates_)
    places.push_back({of_key.step, OracleMix64(OracleMix64(key)), key});
  std::ranges::sort(places);
  places.resize(places.size() - most * 95 / 100);
  for (const auto& place : places) candidates_.erase(place[2]);
}

std::uint64_t Oracle::Sweep() {
  if (options_.ttl_steps == 0 || step_ < options_.ttl_steps) return 0;
  const std::uint64_t gone = std::erase_if(rows_, [&](const auto& entry) {
    const std::uint64_t score = ScoreIn(entry.second);
    return (Counts() ? score % kStepsOfScore : score) + options_.ttl_steps <= step_;
  });
  expired_rows_ += gone;
  return gone;
}

std::uint64_t Oracle::EvictAllBut(std::uint64_t keep) {
  std::vector<std::array<std::uint64_t, 3>> places;  // score, tie, key
  for (const auto& [key, row] : rows_) places.push_back({OrderOf(row), OracleMix64(OracleMix64(key)), key});
  std::ranges::sort(places);
  places.resize(places.size() - std::min<std::size_t>(places.size(), keep));
  for (const auto& place : places) rows_.erase(place[2]);
  evicted_rows_ += places.size();
  return places.size();
}

std::uint64_t Oracle::EvictBelow(std::uint64_t number) {
  const std::uint64_t gone = std::erase_if(rows_, [&](const auto& entry) {
    const std::uint64_t order = OrderOf(entry.second);
    return (Counts() ? order / kStepsOfScore : order) < number;
  });
  evicted_rows_ += gone;
  return gone;
}

std::uint64_t Oracle::Erase(const std::vector<std::uint64_t>& keys) {
  std::uint64_t erased = 0;
  for (const std::uint64_t key : keys) {
    erased += rows_.erase(key);
    candidates_.erase(key);
  }
  return erased;
}

}  // namespace slotwise::test
