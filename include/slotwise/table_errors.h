// All that is wrong with a table's options, to mend it at once. Validate() says the first.
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
