#include "tests/support/checked_table.h"

#include <cmath>

#include "tests/support/same_bytes.h"

namespace slotwise::test {
namespace {

::testing::ScopedTrace TraceOf(const std::source_location& place) {
  return {place.file_name(), static_cast<int>(place.line()), "asked for here"};
}

int RanksOn(const Cluster& cluster, int wanted) { return cluster.RanksOf({wanted}).front(); }

BucketMap Folded(BucketMap owners, int ranks) {
  for (std::uint16_t& owner : owners) owner = static_cast<std::uint16_t>(owner % ranks);
  return owners;
}

}  // namespace

TableOptions MakeOptions(std::uint32_t dim, Combiner combiner, OptimizerKind optimizer) {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = dim;
  options.max_rows = 1 << 20;  // address space is reserved for all rows, and sanitizers have less of it
  options.combiner = combiner;
  options.optimizer.kind = optimizer;
  options.optimizer.learning_rate = 0.05F;
  const bool running_mean = optimizer == OptimizerKind::kAdam || optimizer == OptimizerKind::kRmsProp;
  options.optimizer.epsilon = running_mean ? 1e-8F : 1e-10F;
  options.optimizer.initial_accumulator = 0.1F;
  options.optimizer.lambda1 = 0.02F;
  options.optimizer.lambda2 = 0.3F;
  options.initializer = {.low = -0.05F, .high = 0.05F, .seed = 0x0123'4567'89AB'CDEF};
  return options;
}

TableOptions MakeIntegerOptions(std::uint32_t dim, Combiner combiner) {
  TableOptions options = MakeOptions(dim, combiner);
  options.initializer = {.low = 3.0F, .high = 3.0F, .seed = 1};
  options.optimizer.learning_rate = 1.0F;
  return options;
}

std::vector<ExportedRow> ExportOf(const Oracle& oracle) {
  std::vector<ExportedRow> rows;
  for (const auto& [key, row] : oracle.rows()) {
    ExportedRow exported{Key{key}, row.values};
    exported.values.insert(exported.values.end(), row.state.begin(), row.state.end());
    rows.push_back(std::move(exported));
  }
  return rows;
}

void ExpectSameRows(const std::vector<ExportedRow>& actual, const std::vector<ExportedRow>& expected) {
  ASSERT_EQ(actual.size(), expected.size()) << "another number of rows";
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(Value(actual[i].key), Value(expected[i].key))
        << "another key in place " << i << " of the sorted table";
    ASSERT_TRUE(SameBytes(actual[i].values, expected[i].values))
        << "in the row of key " << Value(actual[i].key);
  }
}

CheckedTable::CheckedTable(Cluster& cluster, const TableOptions& options, int ranks)
    : CheckedTable(cluster, options, ranks, EvenBucketMap(RanksOn(cluster, ranks))) {}

CheckedTable::CheckedTable(Cluster& cluster, const TableOptions& options, int ranks, const BucketMap& owners)
    : CheckedTable(
          cluster.device(), options,
          cluster.MakeShards(options, RanksOn(cluster, ranks), Folded(owners, RanksOn(cluster, ranks))),
          Folded(owners, RanksOn(cluster, ranks)), DataType::kFloat32) {}

CheckedTable::CheckedTable(Device& device, const TableOptions& options, int ranks)
    : CheckedTable(device, options, ranks, EvenBucketMap(ranks)) {}

CheckedTable::CheckedTable(Device& device, const TableOptions& options, int ranks, const BucketMap& owners,
                           DataType partials)
    : CheckedTable(
          device, options,
          std::make_unique<MultiShard>(std::vector<Device*>{&device}, options, ranks, owners, partials),
          owners, ranks == 1 ? DataType::kFloat32 : partials) {}

CheckedTable::CheckedTable(Device& device, const TableOptions& options, std::unique_ptr<TableShards> shards,
                           const BucketMap& owners, DataType partials)
    : options_(options),
      shards_(std::move(shards)),
      oracle_(options, std::vector<int>(owners.begin(), owners.end())) {
  oracle_.RoundPartialSums(partials);
  if (options.initializer.kind == InitializerKind::kNormal) {
    TableOptions untouched = options;
    untouched.combiner = Combiner::kSum;
    untouched.max_rows = 1 << 20;  // room for refused batches' keys too
    first_values_ =
        std::make_unique<MultiShard>(std::vector<Device*>{&device}, untouched, 1, EvenBucketMap(1));
  }
}

void CheckedTable::TellFirstValues(const Batch& batch) {
  if (first_values_ == nullptr) {
    return;
  }
  Batch one_key_a_bag;
  for (const Key key : batch.keys) {
    one_key_a_bag.AddBag(std::array{Value(key)});
  }
  // A sum of +0 and one row is that row, except for a -0, which no normal value here is.
  const Result<std::vector<float>> rows = first_values_->Lookup(one_key_a_bag, LookupMode::kTrain);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    const auto row = rows->begin() + static_cast<std::ptrdiff_t>(i * options_.dim);
    oracle_.GiveFirstValues(Value(batch.keys[i]), {row, row + options_.dim});
  }
}

bool CheckedTable::Lookup(const Batch& batch, LookupMode mode, Place place) {
  const auto trace = TraceOf(place);
  TellFirstValues(batch);
  const std::optional<std::vector<float>> expected = oracle_.Lookup(batch, mode);
  const Result<std::vector<float>> actual = shards_->Lookup(batch, mode);
  if (!expected.has_value()) {
    EXPECT_EQ(actual.status().code(), StatusCode::kResourceExhausted) << actual.status().message();
    return false;
  }
  if (!actual.ok()) {
    ADD_FAILURE() << "the table had room: " << actual.status().message();
    return false;
  }
  EXPECT_TRUE(SameBytes(*actual, *expected, options_.dim)) << "in the pooled bags of a lookup";
  return true;
}

bool CheckedTable::Push(const Batch& batch, const std::vector<float>& gradients, Place place) {
  const auto trace = TraceOf(place);
  TellFirstValues(batch);
  const bool expected = oracle_.Push(batch, gradients);
  const Status actual = shards_->Push(batch, gradients);
  EXPECT_EQ(actual.code(), expected ? StatusCode::kOk : StatusCode::kResourceExhausted) << actual.message();
  EXPECT_EQ(shards_->step(), oracle_.step()) << "a refused step was counted, or an applied one was not";
  return expected;
}

bool CheckedTable::PushRandom(const Batch& batch, Random& random, Place place) {
  return Push(batch, RandomGradients(random, std::size_t{batch.bags()} * options_.dim), place);
}

bool CheckedTable::Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records,
                          Place place) {
  const auto trace = TraceOf(place);
  TellFirstValues(OneKeyABag(keys));
  const bool expected = oracle_.Import(keys, records);
  const Status actual = shards_->Import(keys, records);
  EXPECT_EQ(actual.code(), expected ? StatusCode::kOk : StatusCode::kResourceExhausted) << actual.message();
  return expected;
}

bool CheckedTable::ImportRandom(const std::vector<std::uint64_t>& keys, bool with_state, Random& random,
                                Place place) {
  const OptimizerKind kind = options_.optimizer.kind;
  const std::size_t state = with_state ? StateFloats(kind, options_.dim) : 0;
  const std::size_t columns = options_.dim + state;
  std::vector<float> records = RandomGradients(random, keys.size() * columns);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const bool is_square = i % columns >= options_.dim + SquaresBegin(kind, options_.dim);
    if (is_square) records[i] = std::fabs(records[i]);
  }
  return Import(keys, records, place);
}

std::uint64_t CheckedTable::Erase(const std::vector<std::uint64_t>& keys, Place place) {
  const auto trace = TraceOf(place);
  const std::uint64_t expected = oracle_.Erase(keys);
  EXPECT_EQ(shards_->Erase(keys), expected);
  return expected;
}

void CheckedTable::Alter(const TableOptions& options, Place place) {
  const auto trace = TraceOf(place);
  const Status altered = shards_->Alter(options);
  ASSERT_TRUE(altered.ok()) << altered.message();
  oracle_.Alter(options);
  options_ = options;
}

void CheckedTable::ExpectRowsMatch(Place place) {
  const auto trace = TraceOf(place);
  ExpectSameRows(shards_->Export(), ExportOf(oracle_));
  EXPECT_EQ(shards_->rows(), oracle_.rows().size()) << "Usage().rows";
}

}  // namespace slotwise::test
