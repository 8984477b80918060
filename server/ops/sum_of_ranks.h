// Adds up the ranks' metrics, in Prometheus's text format, to the server's.
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_OPS_SUM_OF_RANKS_H_
#define SLOTWISE_SERVER_OPS_SUM_OF_RANKS_H_

#include <string>
#include <vector>

namespace slotwise {

// Returns metrics of the same names without the label `rank`, in the order of the first text. A value is the
// sum of the ranks' values, except: the largest for values that are the same on every rank or belong to the
// server; the smallest for slotwise_journal_durable_round and slotwise_data_folder_free_bytes. Shares, which
// have no sum, are left out. REQUIRES: at least one text, and each is MetricsOf's as text.
std::string SumOfRanks(const std::vector<std::string>& texts);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_SUM_OF_RANKS_H_
