// CheckedTable is a backend's table and its oracle. Every operation runs on both, and the results are
// compared.
//
// A difference fails the running test and names the calling line.
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

// All combiners but kNone, which takes other batches.
inline constexpr std::array kEveryCombiner{Combiner::kSum, Combiner::kMean, Combiner::kSqrtn};
inline const std::vector<OptimizerKind> kEveryOptimizer = EveryKind<OptimizerKind>();

// Returns options with uniform initial values, which a test can change.
TableOptions MakeOptions(std::uint32_t dim, Combiner combiner = Combiner::kSum,
                         OptimizerKind optimizer = OptimizerKind::kSgd);

// Returns options for arithmetic in whole numbers: rows begin at 3, and SGD subtracts the gradient itself.
TableOptions MakeIntegerOptions(std::uint32_t dim, Combiner combiner = Combiner::kSum);

// Returns the oracle's rows in the layout of a shard's Read, sorted by key.
std::vector<ExportedRow> ExportOf(const Oracle& oracle);

// Fails the test unless both have the same rows, byte for byte, in the same order.
void ExpectSameRows(const std::vector<ExportedRow>& actual, const std::vector<ExportedRow>& expected);

class CheckedTable {
 public:
  // Makes the table on `ranks` ranks of `cluster`, or on the number of ranks that the cluster has; owners are
  // then taken modulo that number.
  explicit CheckedTable(Cluster& cluster, const TableOptions& options, int ranks = 1);
  CheckedTable(Cluster& cluster, const TableOptions& options, int ranks, const BucketMap& owners);
  // Makes all shards in this process and on one device, for tests that inspect a shard.
  explicit CheckedTable(Device& device, const TableOptions& options, int ranks = 1);
  // `partials` is the type of partial sums on their way between ranks.
  CheckedTable(Device& device, const TableOptions& options, int ranks, const BucketMap& owners,
               DataType partials = DataType::kFloat32);

  using Place = std::source_location;

  // Both compare the outcome and the output. They return true if the table had room.
  bool Lookup(const Batch& batch, LookupMode mode, Place place = Place::current());
  bool Push(const Batch& batch, const std::vector<float>& gradients, Place place = Place::current());
  // Calls Push with gradients drawn from `random`.
  bool PushRandom(const Batch& batch, Random& random, Place place = Place::current());

  bool Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records,
              Place place = Place::current());
  // Calls Import with records drawn from `random`; state, if given, has no negative squares.
  bool ImportRandom(const std::vector<std::uint64_t>& keys, bool with_state, Random& random,
                    Place place = Place::current());
  // Returns the number of `keys` that had a row.
  std::uint64_t Erase(const std::vector<std::uint64_t>& keys, Place place = Place::current());

  // Alters the table, which has the memory.
  void Alter(const TableOptions& options, Place place = Place::current());

  // Compares every row and optimizer state.
  void ExpectRowsMatch(Place place = Place::current());

  TableShards& shards() { return *shards_; }
  const Oracle& oracle() const { return oracle_; }
  const TableOptions& options() const { return options_; }

 private:
  CheckedTable(Device& device, const TableOptions& options, std::unique_ptr<TableShards> shards,
               const BucketMap& owners, DataType partials);

  // Gives the oracle the initial values of a normal table's keys, read from an unused table.
  void TellFirstValues(const Batch& batch);

  TableOptions options_;
  std::unique_ptr<TableShards> shards_;
  Oracle oracle_;
  std::unique_ptr<MultiShard> first_values_;  // normal tables only
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_CHECKED_TABLE_H_
