// Lists all errors in a table's options, so that they can be mended at once. Validate() returns the first.
// Thread-safety: free functions.
#ifndef SLOTWISE_TABLE_ERRORS_H_
#define SLOTWISE_TABLE_ERRORS_H_

#include <vector>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Returns INVALID_ARGUMENT with the field and its value for each reason why `options` cannot make a table.
std::vector<Status> ErrorsIn(const TableOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_TABLE_ERRORS_H_
