// Checks of a round's records, before a recovery applies them again. A checksum says that a record is the one
// that was written; but somebody who can write to the folder can write the checksum, too. So a server refuses
// of a journal all that it refuses of a client.
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

// Check that the records of all ranks are of one round, of some table, and of counts of steps and ranks that
// there can be. CheckRowsByKey also checks that they are of one table.
Status CheckBatches(std::span<const RecordedBatches> of_ranks);
Status CheckRowsByKey(std::span<const RecordedBatches> of_ranks);

// Checks the name and the parts of a push's step. REQUIRES: CheckBatches.
Status CheckStep(const RecordedBatches& record);

// Checks the arrays of a part: of a push to a table of these options, or, of none, of rows by key.
Status CheckArrays(const RecordedPart& part, const RecordedArrays& arrays, const TableOptions* pushed_to);

// Checks rows of `columns` numbers, of which those from `squares` on are sums or means of squares.
Status CheckRows(std::span<const float> rows, std::uint32_t columns, std::uint32_t squares);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_CHECKS_H_
