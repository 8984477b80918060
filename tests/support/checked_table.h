// CheckedTable: a table on some backend and its oracle, side by side. Every operation runs on both and is compared.
//
// A difference fails the running test and names the line that asked.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_CHECKED_TABLE_H_
#define SLOTWISE_TESTS_SUPPORT_CHECKED_TABLE_H_

#include <array>
#include <memory>
#include <source_location>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/oracle.h"

namespace slotwise::test {

// But for kNone, which takes other batches.
inline constexpr std::array kEveryCombiner{Combiner::kSum, Combiner::kMean, Combiner::kSqrtn};
inline constexpr std::array kEveryOptimizer{OptimizerKind::kSgd,
                                            OptimizerKind::kMomentum,
                                            OptimizerKind::kNesterov,
                                            OptimizerKind::kAdaGrad,
                                            OptimizerKind::kRowWiseAdaGrad,
                                            OptimizerKind::kRmsProp,
                                            OptimizerKind::kAdam,
                                            OptimizerKind::kFtrl};

// A table of `dim` elements with uniform first values, for tests to change as they need.
TableOptions MakeOptions(std::uint32_t dim, Combiner combiner = Combiner::kSum,
                         OptimizerKind optimizer = OptimizerKind::kSgd);

// First values and arithmetic in whole numbers: rows begin at 3, and SGD subtracts the gradient as it is.
TableOptions MakeIntegerOptions(std::uint32_t dim, Combiner combiner = Combiner::kSum);

// The oracle's rows as a shard's Read lays them out, by key.
std::vector<ExportedRow> ExportOf(const Oracle& oracle);

// Fails the test unless both are the same rows, byte for byte, in the same order.
void ExpectSameRows(const std::vector<ExportedRow>& actual, const std::vector<ExportedRow>& expected);

class CheckedTable {
 public:
  // On so many ranks of `cluster`, or those that it has: then of an owner, the remainder counts.
  explicit CheckedTable(Cluster& cluster, const TableOptions& options, int ranks = 1);
  CheckedTable(Cluster& cluster, const TableOptions& options, int ranks, const BucketMap& owners);
  // All shards in this process, on one device: for tests that look into a shard.
  explicit CheckedTable(Device& device, const TableOptions& options, int ranks = 1);
  // `partials`: what partial sums travel as between several ranks.
  CheckedTable(Device& device, const TableOptions& options, int ranks, const BucketMap& owners,
               DataType partials = DataType::kFloat32);

  using Place = std::source_location;

  // Both compare the outcome and the output. True if the table had room.
  bool Lookup(const Batch& batch, LookupMode mode, Place place = Place::current());
  bool Push(const Batch& batch, const std::vector<float>& gradients, Place place = Place::current());
  // Push with gradients drawn from `random`.
  bool PushRandom(const Batch& batch, Random& random, Place place = Place::current());

  bool Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records,
              Place place = Place::current());
  // Import with records drawn from `random`: with state, squares are never negative.
  bool ImportRandom(const std::vector<std::uint64_t>& keys, bool with_state, Random& random,
                    Place place = Place::current());
  // How many of `keys` had a row.
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys, Place place = Place::current());

  // Compares every row and optimizer state.
  void ExpectRowsMatch(Place place = Place::current());

  TableShards& shards() { return *shards_; }
  const Oracle& oracle() const { return oracle_; }
  const TableOptions& options() const { return options_; }

 private:
  CheckedTable(Device& device, const TableOptions& options, std::unique_ptr<TableShards> shards,
               const BucketMap& owners, DataType partials);

  // Lets the oracle know the first values of a normal table's keys, from an untouched table beside this one.
  void TellFirstValues(const Batch& batch);

  TableOptions options_;
  std::unique_ptr<TableShards> shards_;
  Oracle oracle_;
  std::unique_ptr<MultiShard> first_values_;  // normal tables only
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_CHECKED_TABLE_H_
