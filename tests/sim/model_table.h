// ModelTable: a table's contents after each round, by the oracle.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SIM_MODEL_TABLE_H_
#define SLOTWISE_TESTS_SIM_MODEL_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/shard.h"
#include "server/engine/rank_limit.h"
#include "slotwise/table_options.h"
#include "tests/support/oracle.h"

namespace slotwise::sim {

class ModelTable {
 public:
  // `limit` is the limit of one rank, if there are several.
  ModelTable(const TableOptions& options, int ranks, DataType partials, const RankLimit& limit);

  const TableOptions& options() const { return options_; }
  test::Oracle& oracle() { return oracle_; }
  const test::Oracle& oracle() const { return oracle_; }
  std::uint64_t steps() const { return oracle_.step(); }
  std::uint64_t evicted_rows() const { return oracle_.evicted_rows(); }
  std::uint64_t expired_rows() const { return oracle_.expired_rows(); }
  // Returns whether the table has taken as many steps since its last sweep that it is swept before the next
  // round: a 16th of the time to live, and at least one.
  bool IsDue() const;
  // Sweeps the table; a rank that has no memory keeps all rows.
  std::uint64_t Sweep(bool has_memory);

  // Returns the options that the table was made with.
  const TableOptions& made() const { return made_; }
  // Gives the table the options that the alteration makes of its own. Returns whether they are others. If the
  // table has no room for its rows then, nothing changes, and `fits` becomes false.
  bool Alter(const TableAlteration& alteration, bool& fits);

  void SetLearningRate(float rate);
  float NextLearningRate() const;
  // Applies a step, at its own rate if it has one. Returns false and changes nothing if there is no room.
  bool Push(const test::Batch& batch, const std::vector<float>& gradients, std::optional<float> rate);

  int OwnerOf(std::uint64_t key) const;
  DigestSums Digest() const;
  std::vector<std::uint64_t> KeysOf(int rank) const;
  std::vector<float> RecordOf(std::uint64_t key) const;
  std::uint64_t CountNew(const test::Batch& batch) const;

 private:
  void LimitRanks();

  TableOptions made_;
  TableOptions options_;
  int ranks_;
  RankLimit limit_;
  test::Oracle oracle_;
  std::uint64_t swept_ = 0;  // the steps at the last sweep
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_MODEL_TABLE_H_
