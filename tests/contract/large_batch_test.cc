// Tests batches so large that each tile of a device gets several bags and rows.
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class LargeBatches : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(LargeBatches);

// Bags of 0 to 3 keys, some absent, and about 70'000 rows that occur once or a few times: for tiles of each
// width.
TEST_P(LargeBatches, ArePooledAndUpdatedAsSmallOnesAre) {
  for (const std::uint32_t dim : {6, 12, 64}) {
    for (const int ranks : cluster().RanksOf({1, 2})) {
      if (ranks > 1 && dim != 12) continue;
      SCOPED_TRACE("dim " + std::to_string(dim) + " on " + std::to_string(ranks) + " shards");
      CheckedTable table(cluster(), MakeOptions(dim, Combiner::kSum, OptimizerKind::kAdaGrad), ranks);
      Random random(91);
      const BatchShape shape{.bags = 70'000, .max_bag = 3, .distinct_keys = 140'000};
      table.PushRandom(RandomBatch(random, shape), random);
      table.Lookup(RandomBatch(random, shape), LookupMode::kEval);
      table.ExpectRowsMatch();
    }
  }
}

}  // namespace
}  // namespace slotwise::test
