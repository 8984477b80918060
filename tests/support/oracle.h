// Oracle: one embedding table as semantics.md tells it, in plain code over a std::map.
//
// It shares no code with kernels/ and takes no thought for speed. Whatever a backend does must equal it byte for byte.
// It also plays a table that lies on several ranks: rows do not depend on that, but pooled sums do, since each rank
// adds its own keys first and the ranks' partial sums are added after, in rank order.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_ORACLE_H_
#define SLOTWISE_TESTS_SUPPORT_ORACLE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "slotwise/data_type.h"
#include "slotwise/table_options.h"
#include "tests/support/batches.h"
#include "tests/support/oracle_update.h"

namespace slotwise::test {

std::uint64_t OracleMix64(std::uint64_t x);

// 0 .. 4095.
std::uint32_t OracleBucket(std::uint64_t key);

// Philox4x32-10 of Salmon et al., SC'11.
std::array<std::uint32_t, 4> OraclePhilox(std::array<std::uint32_t, 4> counter,
                                          std::array<std::uint32_t, 2> key);

// The first value of element j of `key`'s row. REQUIRES: a uniform or constant initializer.
float OracleFirstValue(const InitializerOptions& initializer, std::uint64_t key, std::uint32_t j);

// The sum of `terms`: blocks of 32 added in order, their sums again, until one is left. Nothing sums to 0.
float OracleBlockedSum(std::vector<float> terms);

// The nearest number that has `type`'s digits and exponents, ties to the even one; past the largest it is infinity.
float OracleRounded(float value, DataType type);

class Oracle {
 public:
  using Row = OracleRow;

  // `owner_of_bucket[bucket(key)]` is the rank that holds the key; all on rank 0 if it is empty.
  explicit Oracle(const TableOptions& options, std::vector<int> owner_of_bucket = {});

  // What `key`'s row holds when it comes into being. REQUIRED for every key of a table with a normal initializer: how
  // its quantile is rounded is the backends' own affair, on which they need only agree.
  void GiveFirstValues(std::uint64_t key, std::vector<float> values);

  // From now on each rank's partial sum of a bag is rounded to `type` before they are added.
  void RoundPartialSums(DataType type) { partials_ = type; }

  // The pooled bags, float[bags][dim]; nothing if TRAIN would take the table past max_rows.
  std::optional<std::vector<float>> Lookup(const Batch& batch, LookupMode mode);

  // One step. False, with nothing changed and no step counted, if the table would go past max_rows.
  bool Push(const Batch& batch, const std::vector<float>& gradients);

  // Overwrites rows, `columns` floats a key: their values, with the state of new rows, or values and state. False, with
  // nothing changed, if the table would go past max_rows.
  bool Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records);

  // The learning rate of the steps to come, by the schedule if there is one.
  void SetLearningRate(float rate) { options_.optimizer.learning_rate = rate; }

  // Raises the count of steps to `step`.
  void RaiseStep(std::uint64_t step) { step_ = std::max(step_, step); }

  // How many of `keys` had a row, until now.
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys);

  const std::map<std::uint64_t, Row>& rows() const { return rows_; }
  std::uint64_t step() const { return step_; }

 private:
  bool InsertAbsentKeys(const Batch& batch);
  std::vector<float> FirstValuesOf(std::uint64_t key) const;
  // What the combiner divides bag b by.
  float Divisor(const Batch& batch, std::uint32_t b) const;
  int OwnerOf(std::uint64_t key) const;
  void AddBagOfRank(const Batch& batch, std::uint32_t bag, int rank, float* partial) const;

  TableOptions options_;
  std::vector<int> owner_of_bucket_;
  int ranks_ = 1;
  DataType partials_ = DataType::kFloat32;
  std::map<std::uint64_t, Row> rows_;
  std::map<std::uint64_t, std::vector<float>> given_first_values_;
  std::uint64_t step_ = 0;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_ORACLE_H_
