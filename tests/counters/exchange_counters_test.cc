// Tests the times of exchanges between ranks.
#include "server/counters/exchange_counters.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <set>
#include <string_view>

namespace slotwise {
namespace {

TEST(ExchangeCountersTest, CountOperationsApart) {
  ExchangeCounters counters;
  counters[ExchangeOperation::kReduceScatter].Count(std::chrono::nanoseconds(5));
  counters[ExchangeOperation::kAllToAll].Count(std::chrono::nanoseconds(7));
  counters[ExchangeOperation::kAllToAll].Count(std::chrono::nanoseconds(8));
  const ExchangeStats stats = counters.Read();
  EXPECT_EQ(stats[0], DurationStats{});
  EXPECT_EQ(stats[1].count(), 1U);
  EXPECT_EQ(stats[1].sum_ns, 5U);
  EXPECT_EQ(stats[2].count(), 2U);
  EXPECT_EQ(stats[2].sum_ns, 15U);
}

TEST(ExchangeCountersTest, OperationsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kExchangeOperations; ++i)
    names.insert(ToString(static_cast<ExchangeOperation>(i)));
  EXPECT_EQ(names, (std::set<std::string_view>{"all_gather", "reduce_scatter", "all_to_all"}));
}

}  // namespace
}  // namespace slotwise
