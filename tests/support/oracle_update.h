// OracleUpdate computes every optimizer's update of a row, as docs/semantics.md describes it, in plain code.
//
// The code shares nothing with kernels/body/optimizer.h, and does every float32 operation in the agreed
// order.
// Thread-safety: pure functions.
#ifndef SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_
#define SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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

// Returns the weight that element j of a row stores for a weight that a step computes.
using OracleRounding = std::function<float(float weight, std::size_t j)>;

// Applies the table's step `step`, counted from 1, to a row with the summed gradient `gradient`. An element
// whose weight or state would become infinite or NaN, or whose weight would once it is rounded, does not
// change.
void OracleUpdate(
    const OptimizerOptions& optimizer, std::uint64_t step, std::vector<float> gradient, OracleRow& row,
    const OracleRounding& round = [](float weight, std::size_t /*j*/) { return weight; });

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_
