// OracleUpdate: every optimizer as docs/semantics.md tells it, a row at a time, in plain code.
//
// It shares no code with kernels/body/optimizer.h, and every float32 operation is written in the agreed order.
// Thread-safety: pure functions.
#ifndef SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_
#define SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_

#include <cstdint>
#include <vector>

#include "slotwise/table_options.h"

namespace slotwise::test {

// A row and, behind each other, its optimizer's state: AdaGrad s, RowWiseAdaGrad one s, Momentum v, Nesterov a,
// RMSProp v, Adam m then v, FTRL z then n.
struct OracleRow {
  std::vector<float> values;
  std::vector<float> state;
};

// The state of a row that no step has touched.
std::vector<float> OracleFirstState(const OptimizerOptions& optimizer, std::uint32_t dim);

// Step `step` of the table, from 1, on a row whose summed gradient is `gradient`.
void OracleUpdate(const OptimizerOptions& optimizer, std::uint64_t step, std::vector<float> gradient,
                  OracleRow& row);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_ORACLE_UPDATE_H_
