// ExchangeCounters: histograms of the durations of exchanges between ranks, by operation.
// Thread-safety: any thread. A reading is no snapshot.
#ifndef SLOTWISE_SERVER_COUNTERS_EXCHANGE_COUNTERS_H_
#define SLOTWISE_SERVER_COUNTERS_EXCHANGE_COUNTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/counters/duration_counter.h"
#include "slotwise/server_stats.h"

namespace slotwise {

// The operations of an exchange (server/collective/exchange.h).
enum class ExchangeOperation : std::uint8_t { kAllGather, kReduceScatter, kAllToAll };
inline constexpr std::size_t kExchangeOperations = 3;

// Returns the operation's name, such as "all_gather".
std::string_view ToString(ExchangeOperation operation);

// The durations of the timed operations, by ExchangeOperation.
using ExchangeStats = std::array<DurationStats, kExchangeOperations>;

class ExchangeCounters {
 public:
  DurationCounter& operator[](ExchangeOperation operation) {
    return durations_[static_cast<std::size_t>(operation)];
  }
  ExchangeStats Read() const;

 private:
  std::array<DurationCounter, kExchangeOperations> durations_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_EXCHANGE_COUNTERS_H_
