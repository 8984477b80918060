// Checks of a round's records, before a recovery applies them again. A checksum says that a record is the one
// that was written; but somebody who can write to the folder can write the checksum, too. So a server refuses
// of a journal all that it refuses of a client.
//
// Errors: DATA_LOSS, with the field and its value.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_ENGINE_RECORD_CHECKS_H_
#define SLOTWISE_SERVER_ENGINE_RECORD_CHECKS_H_

#include <cstdint>
#include <span>

#include "server/engine/round_record.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Checks that the records of all ranks are of one round: what all of them say is the same.
Status CheckAlike(std::span<const RoundRecord> records);

// Checks the name and the parts of a push's step. REQUIRES: CheckAlike.
Status CheckStep(const RoundRecord& record);

// Checks the arrays of a part: of a push to a table of these options, or, of none, of rows by key.
Status CheckArrays(const RecordedPart& part, const RecordedArrays& arrays, const TableOptions* pushed_to);

// Checks rows of `columns` numbers, of which those from `squares` on are sums or means of squares.
Status CheckRows(std::span<const float> rows, std::uint32_t columns, std::uint32_t squares);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_RECORD_CHECKS_H_
