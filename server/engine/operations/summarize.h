// Summarize: summarizes a table over all ranks, with a digest on request.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_SUMMARIZE_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_SUMMARIZE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "server/engine/operations/definition.h"

namespace slotwise {

// A summary of a table over all ranks.
struct TableSummary {
  std::uint64_t steps = 0;
  float learning_rate = 0;         // of the next step
  float base_learning_rate = 0;    // where the schedule starts
  DigestSums digest;               // zeros unless asked for
  std::vector<ShardUsage> shards;  // in rank order; the bytes are with those of candidates
  TravelledRounds rounds;
  std::uint64_t generation = 0;
  std::uint64_t evicted_rows = 0;  // on all ranks, since the server's start or the table's load
  std::uint64_t expired_rows = 0;  // the same
  std::uint64_t candidates = 0;    // keys without a row that are counted, on all ranks
};

struct SummarizeRequest {
  static constexpr Operation kOperation{4};
  static constexpr OperationClass kClass = OperationClass::kShared;

  TableId table{0};
  bool with_digest = false;
  std::function<void(Result<TableSummary>)> done;
  Caller caller = {};

  Payload payload() const { return Payload(with_digest); }
};

namespace operations {

struct Summarize {
  using Request = SummarizeRequest;
  static constexpr bool kTakesLong = true;

  static void Run(RoundContext& context, const Round& round) {
    const Table& table = *context.tables.Get(round.table);
    TableSummary summary;
    summary.steps = table.steps;
    summary.generation = table.generation;
    summary.learning_rate = LearningRateOfStep(table.optimizer(), table.steps + 1);
    summary.base_learning_rate = table.learning_rate;
    summary.evicted_rows = table.evicted_rows;
    summary.expired_rows = table.expired_rows;
    ShardUsage mine = table.shard->Usage();
    mine.refused_keys -= table.refused_before;
    if (const Table* const candidates = context.tables.CandidatesOf(table); candidates != nullptr) {
      const ShardUsage counts = candidates->shard->Usage();
      std::array<std::uint64_t, 1> keys{counts.rows};
      context.collective.AllReduceSum(keys);
      summary.candidates = keys[0];
      mine.bytes += counts.bytes;
    }
    summary.shards = AllGatherValues(context.collective, mine);
    summary.rounds = table.rounds;
    if (round.payload.As<bool>()) {
      const DigestSums digest = table.shard->Digest();
      std::array<std::uint64_t, 2> sums{digest.low, digest.high};
      context.collective.AllReduceSum(sums);
      summary.digest = {sums[0], sums[1]};
    }
    context.AnswerMineWith<Request>(round, summary);
  }
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_SUMMARIZE_H_
