#include "server/ops/sum_of_ranks.h"

#include <gtest/gtest.h>

#include <string>

namespace slotwise {
namespace {

TEST(SumOfRanks, AddsValuesUpAndForgetsTheRank) {
  const std::string first =
      "# HELP slotwise_requests_total Calls\n"
      "# TYPE slotwise_requests_total counter\n"
      "slotwise_requests_total{rank=\"0\",method=\"lookup\",code=\"OK\"} 3\n"
      "slotwise_requests_total{rank=\"0\",method=\"push\",code=\"OK\"} 1\n"
      "# TYPE slotwise_rounds_total counter\n"
      "slotwise_rounds_total{rank=\"0\"} 1e+06\n"
      "# TYPE process_resident_memory_bytes gauge\n"
      "process_resident_memory_bytes 100\n";
  const std::string second =
      "# TYPE slotwise_requests_total counter\n"
      "slotwise_requests_total{rank=\"11\",method=\"lookup\",code=\"OK\"} 4\n"
      "slotwise_requests_total{rank=\"11\",method=\"lookup\",code=\"BUSY\"} 2\n"
      "# TYPE slotwise_rounds_total counter\n"
      "slotwise_rounds_total{rank=\"11\"} 234567.5\n"
      "# TYPE process_resident_memory_bytes gauge\n"
      "process_resident_memory_bytes 11\n";
  EXPECT_EQ(SumOfRanks({first, second}),
            "# HELP slotwise_requests_total Calls\n"
            "# TYPE slotwise_requests_total counter\n"
            "slotwise_requests_total{method=\"lookup\",code=\"OK\"} 7\n"
            "slotwise_requests_total{method=\"push\",code=\"OK\"} 1\n"
            "# TYPE slotwise_rounds_total counter\n"
            "slotwise_rounds_total 1234567.5\n"
            "# TYPE process_resident_memory_bytes gauge\n"
            "process_resident_memory_bytes 111\n"
            "slotwise_requests_total{method=\"lookup\",code=\"BUSY\"} 2\n");
}

TEST(SumOfRanks, TakesTheLargestOfWhatEveryRankCounts) {
  for (const char* const name :
       {"slotwise_ranks", "slotwise_journal_blocked", "slotwise_data_folder_bytes",
        "slotwise_start_time_seconds", "slotwise_round_busy_seconds", "slotwise_table_max_rows",
        "slotwise_table_steps_total", "slotwise_table_batches_total", "slotwise_incomplete_steps",
        "slotwise_journal_failed", "slotwise_journal_appended_round", "slotwise_checkpoint_under_way",
        "slotwise_checkpoint_age_seconds", "slotwise_checkpoint_bytes", "slotwise_checkpoint_rows",
        "slotwise_checkpoints_total", "slotwise_checkpoint_duration_seconds_bucket",
        "slotwise_checkpoint_duration_seconds_sum", "slotwise_checkpoint_duration_seconds_count"}) {
    const std::string series = name;
    EXPECT_EQ(SumOfRanks({series + "{rank=\"0\",table=\"a\"} 5\n", series + "{rank=\"1\",table=\"a\"} 7\n",
                          series + "{rank=\"2\",table=\"a\"} 6\n"}),
              series + "{table=\"a\"} 7\n");
  }
}

// All ranks know the age of the youngest row of an eviction, whichever rank had the row.
TEST(SumOfRanks, DoesNotAddAnAgeUp) {
  const std::string age = "slotwise_table_youngest_evicted_age_steps";
  EXPECT_EQ(SumOfRanks({age + "{rank=\"0\",table=\"a\"} 8\n", age + "{rank=\"1\",table=\"a\"} 8\n"}),
            age + "{table=\"a\"} 8\n");
}

TEST(SumOfRanks, TakesTheSmallestOfWhatHoldsForAllDisks) {
  for (const std::string name : {"slotwise_journal_durable_round", "slotwise_data_folder_free_bytes"}) {
    EXPECT_EQ(SumOfRanks({name + "{rank=\"0\"} 9\n", name + "{rank=\"1\"} 8\n"}), name + " 8\n");
  }
}

TEST(SumOfRanks, LeavesSharesOut) {
  const std::string share =
      "# HELP slotwise_table_hot_keys_share Which part\n"
      "# TYPE slotwise_table_hot_keys_share gauge\n"
      "slotwise_table_hot_keys_share{rank=\"0\",table=\"a\",top=\"1\"} 0.5\n";
  EXPECT_EQ(SumOfRanks({share, share}), "");
}

TEST(SumOfRanks, OfOneRankIsItsOwn) {
  EXPECT_EQ(SumOfRanks({"slotwise_rounds_total{rank=\"0\"} 0.1\nprocess_open_fds 12\n"}),
            "slotwise_rounds_total 0.1\nprocess_open_fds 12\n");
}

// What a rank has in a name does not confuse it.
TEST(SumOfRanks, ReadsLabelsWithSpacesAndBraces) {
  const std::string info = "slotwise_build_info{rank=\"0\",version=\"1\",device=\"cuda (a } b, 1)\"} 1\n";
  EXPECT_EQ(SumOfRanks({info, info}), "slotwise_build_info{version=\"1\",device=\"cuda (a } b, 1)\"} 2\n");
}

}  // namespace
}  // namespace slotwise
