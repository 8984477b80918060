// Summarize: summarizes a table over all ranks, with a digest and the rows' ages on request.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_SUMMARIZE_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_SUMMARIZE_H_

#include <array>
#include <cstddef>
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
  std::uint64_t evicted_rows = 0;      // on all ranks, since the server's start or the table's load
  std::uint64_t expired_rows = 0;      // the same
  std::uint64_t candidates = 0;        // keys without a row that the exact counter counts, on all ranks
  std::uint64_t counter_blocks = 0;    // blocks of the Bloom counter that have counted, on all ranks
  std::uint64_t new_rows = 0;          // that keys got, on all ranks, since the same
  PowerHistogram evicted_ages;         // of rows that went because the table was full, since the same
  std::uint64_t youngest_evicted = 0;  // the least age that a row of the last such eviction can have had
  RowAges ages;                        // of the rows on all ranks; none unless asked for
};

struct SummarizeRequest {
  static constexpr Operation kOperation{4};
  static constexpr OperationClass kClass = OperationClass::kShared;

  TableId table{0};
  bool with_digest = false;
  std::function<void(Result<TableSummary>)> done;
  Caller caller = {};
  bool with_ages = false;  // if the table keeps scores

  struct Asked {
    bool digest;
    bool ages;
  };
  Payload payload() const { return Payload(Asked{with_digest, with_ages}); }
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
    summary.evicted_ages = table.evicted_ages;
    summary.youngest_evicted = table.youngest_evicted;
    ShardUsage mine = table.shard->Usage();
    mine.refused_keys -= table.refused_before;
    std::array<std::uint64_t, 2> counts{table.counters->new_rows(), 0};
    if (const Table* const candidates = context.tables.CandidatesOf(table); candidates != nullptr) {
      const ShardUsage counted = candidates->shard->Usage();
      counts[1] = counted.rows;
      mine.bytes += counted.bytes;
    }
    context.collective.AllReduceSum(counts);
    summary.new_rows = counts[0];
    (table.info.options.has_bloom_counter() ? summary.counter_blocks : summary.candidates) = counts[1];
    summary.shards = AllGatherValues(context.collective, mine);
    summary.rounds = table.rounds;
    const auto asked = round.payload.As<Request::Asked>();
    if (asked.ages && table.info.options.has_scores()) summary.ages = AgesOf(context, table);
    if (asked.digest) {
      const DigestSums digest = table.shard->Digest();
      std::array<std::uint64_t, 2> sums{digest.low, digest.high};
      context.collective.AllReduceSum(sums);
      summary.digest = {sums[0], sums[1]};
    }
    context.AnswerMineWith<Request>(round, summary);
  }

 private:
  // Collective.
  static RowAges AgesOf(RoundContext& context, const Table& table) {
    RowAges ages = table.shard->CountAges(EvictionOrder::Of(table.info.options, table.steps + 1));
    constexpr std::size_t kSums = 2 * PowerHistogram::kBuckets;
    static_assert(sizeof(ages) == kSums * sizeof(std::uint64_t), "they are added up as an array");
    context.collective.AllReduceSum({ages.ages.buckets.data(), kSums});
    return ages;
  }
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_SUMMARIZE_H_
