// Checks a round's records before a recovery replays them. A checksum only shows that a record was not
// damaged: somebody who can write to the folder can also write the checksum. So a server refuses from a
// journal whatever it refuses from a client.
//
// Errors: DATA_LOSS, with the field and its value.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_CHECKS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_CHECKS_H_

#include <cstdint>
#include <span>

#include "server/engine/operations/recorded_batches.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Check that the records of all ranks are of one round on at least one table, with possible counts of steps
// and ranks. CheckRowsByKey also checks that they are of one table.
Status CheckBatches(std::span<const RecordedBatches> of_ranks);
Status CheckRowsByKey(std::span<const RecordedBatches> of_ranks);

// Checks the name and the parts of a push's step. REQUIRES: CheckBatches.
Status CheckStep(const RecordedBatches& record);

// Checks the arrays of a part: of a push to a table with these options, or, if null, of rows by key.
Status CheckArrays(const RecordedPart& part, const RecordedArrays& arrays, const TableOptions* pushed_to);

// Checks rows, which have these columns.
Status CheckRows(std::span<const float> rows, const RecordColumns& columns);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_CHECKS_H_
