// The Oracle is one embedding table as semantics.md describes it, in plain code over a std::map.
//
// It shares no code with kernels/, and speed does not matter. Every backend must equal it byte for byte. It
// also models a table on several ranks. Rows do not depend on the ranks, but pooled sums do: each rank adds
// its own keys first, and then the ranks' partial sums are added in rank order.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_ORACLE_H_
#define SLOTWISE_TESTS_SUPPORT_ORACLE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slotwise/data_type.h"
#include "slotwise/table_options.h"
#include "tests/support/batches.h"
#include "tests/support/oracle_update.h"

namespace slotwise::test {

std::uint64_t OracleMix64(std::uint64_t x);

// Returns the key's bucket, 0 .. 4095.
std::uint32_t OracleBucket(std::uint64_t key);

// Computes SipHash-c-d of a message of any length (Aumasson and Bernstein 2012).
std::uint64_t OracleSipHash(int compression_rounds, int finalization_rounds,
                            const std::array<std::uint8_t, 16>& key, std::span<const std::uint8_t> message);

// Computes Philox4x32-10 of Salmon et al., SC'11, or with as many rounds.
std::array<std::uint32_t, 4> OraclePhilox(std::array<std::uint32_t, 4> counter,
                                          std::array<std::uint32_t, 2> key, int rounds = 10);

// Returns the initial value of element j of `key`'s row. REQUIRES: a uniform or constant initializer.
float OracleFirstValue(const InitializerOptions& initializer, std::uint64_t key, std::uint32_t j);

// Returns the sum of `terms`: adds blocks of 32 in order, then blocks of the sums, until one sum is left. The
// sum of no terms is 0.
float OracleBlockedSum(std::vector<float> terms);

// Rounds `value` to the nearest number with `type`'s digits and exponents, ties to even. Values past the
// largest number become infinity.
float OracleRounded(float value, DataType type);

// Rounds `value` to one of its two neighbours in `type`, by chance, which is a function of the other
// arguments: docs/semantics.md.
float OracleRoundedByChance(float value, DataType type, std::uint64_t seed, std::uint64_t key,
                            std::uint64_t step, std::size_t j);

class Oracle {
 public:
  using Row = OracleRow;

  // `owner_of_bucket[bucket(key)]` is the rank that holds the key; if it is empty, rank 0 holds all keys.
  explicit Oracle(const TableOptions& options, std::vector<int> owner_of_bucket = {});

  // Sets the initial values of `key`'s row. It is required for every key of a table with a normal
  // initializer, because the backends decide how the quantile is rounded and need only agree with each other.
  void GiveFirstValues(std::uint64_t key, std::vector<float> values);

  // From now on, rounds each rank's partial sum of a bag to `type` before the ranks' sums are added.
  void RoundPartialSums(DataType type) { partials_ = type; }

  // From now on, no rank may hold more than `most` rows. The calls below refuse a batch that would exceed
  // this, as they do for max_rows.
  void LimitRanks(std::uint64_t most) { most_rows_of_rank_ = most; }

  // Gives the keys of a batch rows, as a lookup does whose batch this is. Returns false, with nothing
  // changed, if the table would go past max_rows. A table that evicts makes room first. A table with an
  // admission gives none.
  bool MakeRows(const Batch& batch) { return options_.admits() || InsertAbsentKeys(batch, step_); }

  // Returns the pooled bags, float[bags][dim], or nothing if TRAIN would take the table past max_rows.
  std::optional<std::vector<float>> Lookup(const Batch& batch, LookupMode mode);

  // Applies one step. Returns false, with nothing changed and no step counted, if the table would go past
  // max_rows.
  bool Push(const Batch& batch, const std::vector<float>& gradients);

  // Overwrites rows with `columns` floats a key: the values, and new rows get a new state; or values and
  // state. Raises the count of steps to `steps`. Returns false, with nothing changed, if the table would go
  // past max_rows.
  bool Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records,
              std::uint64_t steps = 0);

  // Sets the learning rate of later steps; a schedule, if there is one, starts from it.
  void SetLearningRate(float rate) { options_.optimizer.learning_rate = rate; }

  // Gives the table other options. Rows get scores, or lose them, and candidates are forgotten, as
  // docs/semantics.md says.
  void Alter(const TableOptions& options);

  // Remove rows by their scores, and return how many. Sweep removes those that have expired by ttl_steps,
  // EvictAllBut those that go first until `keep` are left, and EvictBelow those with a score below `number`.
  std::uint64_t Sweep();
  std::uint64_t EvictAllBut(std::uint64_t keep);
  std::uint64_t EvictBelow(std::uint64_t number);

  // Erases `keys`. Returns how many had a row.
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys);

  const std::map<std::uint64_t, Row>& rows() const { return rows_; }
  std::uint64_t step() const { return step_; }
  std::uint64_t evicted_rows() const { return evicted_rows_; }
  std::uint64_t expired_rows() const { return expired_rows_; }
  // Returns the ages of rows that went because the table was full, by eviction.
  const std::vector<std::vector<std::uint64_t>>& evicted_ages() const { return evicted_ages_; }
  // Return the ages of all rows, and how often their keys count for the next eviction if scores count.
  std::vector<std::uint64_t> Ages() const;
  std::vector<std::uint64_t> Occurred() const;

  // A key without a row whose occurrences in pushes are counted, and the step of the last one.
  struct Candidate {
    std::uint64_t count = 0;
    std::uint64_t step = 0;
    friend bool operator==(const Candidate&, const Candidate&) = default;
  };
  const std::map<std::uint64_t, Candidate>& candidates() const { return candidates_; }
  // A block of a Bloom counter, by its bucket and its number in the bucket.
  struct Block {
    std::array<std::uint32_t, 45> counts{};
    std::uint32_t tally = 0;
    friend bool operator==(const Block&, const Block&) = default;
  };
  using BlockName = std::pair<std::uint32_t, std::uint64_t>;
  const std::map<BlockName, Block>& blocks() const { return blocks_; }
  // Returns the block of a key, and the places in the block of the key's counters.
  static BlockName BlockOf(std::uint64_t key, std::uint64_t counter_mib);
  static std::array<std::uint32_t, 3> CountersOf(std::uint64_t key);
  // Returns the occurrences of keys in pushes that got no row.
  std::uint64_t refused_keys() const { return refused_keys_; }

 private:
  using Occurrences = std::map<std::uint64_t, std::uint64_t>;  // by key
  bool IsAdmitted(std::uint64_t key, std::uint64_t occurrences) const;
  bool HasBlooms() const { return options_.has_bloom_counter(); }
  // Returns the least of a key's counters in a Bloom counter.
  std::uint64_t EstimateOf(std::uint64_t key) const;
  // Counts keys that had no row before the step in the Bloom counter.
  void CountInBlocks(const Occurrences& absent);
  // Returns the candidates that are forgotten so that those of `absent` can be counted; nothing if these
  // alone are too many.
  std::optional<std::vector<std::uint64_t>> CandidatesToForget(const Occurrences& absent) const;
  // Makes rows that score as the step behind `steps`.
  bool InsertAbsentKeys(const Batch& batch, std::uint64_t steps);
  // Returns the rows that go so that the table, with `absent` keys more, has room again.
  std::vector<std::uint64_t> RowsToEvict(const Batch& batch, std::uint64_t absent) const;
  void SetScore(Row& row, std::uint64_t score) const;
  static std::uint64_t ScoreIn(const Row& row);
  std::uint64_t AgeOf(const Row& row) const;
  // Scores a row whose key has so many occurrences in the step.
  void Touch(Row& row, std::uint64_t occurrences) const;
  // Returns the count of occurrences in a score, halved until step `now`.
  std::uint64_t CountNow(std::uint64_t score, std::uint64_t now) const;
  std::uint64_t OrderOf(const Row& row) const;
  bool Counts() const { return CountsOccurrences(options_.score()); }
  std::uint64_t MostRows(float share) const;
  std::vector<float> FirstValuesOf(std::uint64_t key) const;
  // Returns what element j of the key's row stores for a weight that the table's last step computes.
  float Stored(float weight, std::uint64_t key, std::size_t j) const;
  // Returns the combiner's divisor of bag b.
  float Divisor(const Batch& batch, std::uint32_t b) const;
  int OwnerOf(std::uint64_t key) const;
  void AddBagOfRank(const Batch& batch, std::uint32_t bag, int rank, bool or_initial, float* partial) const;

  static constexpr std::uint64_t kStepsOfScore = std::uint64_t{1} << 36;

  TableOptions options_;
  std::vector<int> owner_of_bucket_;
  int ranks_ = 1;
  DataType partials_ = DataType::kFloat32;
  std::optional<std::uint64_t> most_rows_of_rank_;
  std::map<std::uint64_t, Row> rows_;
  std::map<std::uint64_t, std::vector<float>> given_first_values_;
  std::uint64_t step_ = 0;
  std::uint64_t evicted_rows_ = 0;
  std::uint64_t expired_rows_ = 0;
  std::vector<std::vector<std::uint64_t>> evicted_ages_;
  std::map<std::uint64_t, Candidate> candidates_;
  std::map<BlockName, Block> blocks_;
  std::uint64_t refused_keys_ = 0;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_ORACLE_H_
