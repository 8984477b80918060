#include "tests/support/checked_table.h"

#include "tests/support/same_bytes.h"

namespace slotwise::test {
namespace {

::testing::ScopedTrace TraceOf(const std::source_location& place) {
  return {place.file_name(), static_cast<int>(place.line()), "asked for here"};
}

}  // namespace

TableOptions MakeOptions(std::uint32_t dim, Combiner combiner, OptimizerKind optimizer) {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = dim;
  options.max_rows = 1 << 20;  // address space is set aside for all of them, and sanitizers have less of it
  options.combiner = combiner;
  options.optimizer.kind = optimizer;
  options.optimizer.learning_rate = 0.05F;
  options.optimizer.epsilon = optimizer == OptimizerKind::kAdam ? 1e-8F : 1e-10F;
  options.optimizer.initial_accumulator = 0.1F;
  options.initializer = {.low = -0.05F, .high = 0.05F, .seed = 0x0123'4567'89AB'CDEF};
  return options;
}

TableOptions MakeIntegerOptions(std::uint32_t dim, Combiner combiner) {
  TableOptions options = MakeOptions(dim, combiner);
  options.initializer = {.low = 3.0F, .high = 3.0F, .seed = 1};
  options.optimizer.learning_rate = 1.0F;
  return options;
}

std::vector<ExportedRow> ExportOf(const Oracle& oracle, OptimizerKind optimizer) {
  std::vector<ExportedRow> rows;
  for (const auto& [key, row] : oracle.rows()) {
    ExportedRow exported{Key{key}, row.values};
    if (StateVectors(optimizer) >= 1) {
      exported.values.insert(exported.values.end(), row.first_state.begin(), row.first_state.end());
    }
    if (StateVectors(optimizer) >= 2) {
      exported.values.insert(exported.values.end(), row.second_state.begin(), row.second_state.end());
    }
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

CheckedTable::CheckedTable(Device& device, const TableOptions& options, int ranks, const BucketMap& owners)
    : options_(options),
      shards_({&device}, options, ranks, owners),
      oracle_(options, std::vector<int>(owners.begin(), owners.end())) {}

bool CheckedTable::Lookup(const Batch& batch, LookupMode mode, Place place) {
  const auto trace = TraceOf(place);
  const std::optional<std::vector<float>> expected = oracle_.Lookup(batch, mode);
  const Result<std::vector<float>> actual = shards_.Lookup(batch, mode);
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
  const bool expected = oracle_.Push(batch, gradients);
  const Status actual = shards_.Push(batch, gradients);
  EXPECT_EQ(actual.code(), expected ? StatusCode::kOk : StatusCode::kResourceExhausted) << actual.message();
  EXPECT_EQ(shards_.step(), oracle_.step()) << "a refused step was counted, or an applied one was not";
  return expected;
}

bool CheckedTable::PushRandom(const Batch& batch, Random& random, Place place) {
  return Push(batch, RandomGradients(random, std::size_t{batch.bags()} * options_.dim), place);
}

void CheckedTable::ExpectRowsMatch(Place place) {
  const auto trace = TraceOf(place);
  ExpectSameRows(shards_.Export(), ExportOf(oracle_, options_.optimizer.kind));
  EXPECT_EQ(shards_.rows(), oracle_.rows().size()) << "Usage().rows";
}

}  // namespace slotwise::test
