#include "server/counters/exchange_counters.h"

namespace slotwise {

std::string_view ToString(ExchangeOperation operation) {
  switch (operation) {
    case ExchangeOperation::kAllGather:
      return "all_gather";
    case ExchangeOperation::kReduceScatter:
      return "reduce_scatter";
    case ExchangeOperation::kAllToAll:
      return "all_to_all";
  }
  return "unknown";
}

ExchangeStats ExchangeCounters::Read() const {
  ExchangeStats stats;
  for (std::size_t i = 0; i < stats.size(); ++i) stats[i] = durations_[i].Read();
  return stats;
}

}  // namespace slotwise
