// OracleUpdate computes every optimizer's update of a row, as docs/semantics.md describes it, in plain code.
//
// The code shares nothing with kernels/body/optimizer.h, and does every float32 operation in the agreed
// order.
// Thread-safety: pure functions.
#ifndef SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_
#define SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_

#include <cstdint>
#include <vector>

#include "slotwise/table_options.h"

namespace slotwise::test {

// A row and its optimizer's state, vector after vector: AdaGrad s; RowWiseAdaGrad one s; Momentum v; Nesterov
// a; RMSProp v; Adam m, v; FTRL z, n.
struct OracleRow {
  std::vector<float> values;
  std::vector<float> state;
};

// Returns the state of an untouched row.
std::vector<float> OracleFirstState(const OptimizerOptions& optimizer, std::uint32_t dim);

// Applies the table's step `step`, counted from 1, to a row with the summed gradient `gradient`. An element
// whose weight or state would become infinite or NaN does not change.
void OracleUpdate(const OptimizerOptions& optimizer, std::uint64_t step, std::vector<float> gradient,
                  OracleRow& row);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_
