// TableShards is one interface to all shards of a test's table, wherever the shards are.
//
// MultiShard has them in this process. With SpreadShards each process of mpirun has one shard. Every call is
// then collective: all processes make the same calls with the same arguments, and each gets the whole answer.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_TESTS_SUPPORT_TABLE_SHARDS_H_
#define SLOTWISE_TESTS_SUPPORT_TABLE_SHARDS_H_

#include <cstdint>
#include <vector>

#include "kernels/shard.h"
#include "tests/support/batches.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {

// A row as a shard stores it: dim values, then the optimizer's StateFloats(kind, dim).
struct ExportedRow {
  Key key{0};
  std::vector<float> values;
};

// Calls the shard's PrepareInsert or PreparePush.
Preparing PrepareRows(PrepareFor purpose, Shard& shard, const BatchView& batch);

// Checks that `rows` new rows agree with the stated bounds.
void ExpectHolds(const NewRows& said, std::uint64_t rows);

// Erases a batch of `keys`, and checks that the call names the erased keys, each once, and no others. Returns
// their number.
std::uint64_t EraseSaid(ErasableBatch batch, const std::vector<std::uint64_t>& keys);

// Returns every row of a shard, in no particular order.
std::vector<ExportedRow> ExportOf(Shard& shard, const TableOptions& options);

class TableShards {
 public:
  virtual ~TableShards() = default;
  TableShards(const TableShards&) = delete;
  TableShards& operator=(const TableShards&) = delete;

  // Returns the pooled bags, float[bags][dim]. RESOURCE_EXHAUSTED if TRAIN would take the table past
  // max_rows.
  virtual Result<std::vector<float>> Lookup(const Batch& batch, LookupMode mode) = 0;

  // Applies one step. RESOURCE_EXHAUSTED, with nothing changed and no step counted, if the table would go
  // past max_rows.
  virtual Status Push(const Batch& batch, const std::vector<float>& gradients) = 0;

  // Overwrites the rows of `keys` with `records`, float[keys][columns] of dim or dim + state columns.
  virtual Status Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records) = 0;

  // Erases `keys`. Returns the number that had a row.
  virtual std::uint64_t Erase(const std::vector<std::uint64_t>& keys) = 0;

  // Alters the table. RESOURCE_EXHAUSTED: there is no memory. REQUIRES: `options` differ by an alteration.
  virtual Status Alter(const TableOptions& options) = 0;

  // Returns the number of applied steps.
  virtual std::uint64_t step() const = 0;

  // Returns the digest of all rows of all shards.
  virtual DigestSums Digest() = 0;
  virtual std::uint64_t rows() const = 0;
  // Returns the rows of all shards, sorted by key.
  virtual std::vector<ExportedRow> Export() = 0;

  // REQUIRES: the rank's shard is in this process.
  virtual Shard& shard(int rank) = 0;

 protected:
  TableShards() = default;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_TABLE_SHARDS_H_
