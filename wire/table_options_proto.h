// Translates TableOptions between the wire's message, where an absent field has a default, and Slotwise's own
// struct.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_
#define SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_

#include <vector>

#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {

// Fills in the defaults that admin.proto names, and checks the options. INVALID_ARGUMENT names the field and
// its value.
Result<TableOptions> FromProto(const v1::TableOptions& wire);

// The same, with all that is wrong in `errors`; then the options cannot make a table.
TableOptions FromProto(const v1::TableOptions& wire, std::vector<Status>& errors);

// Writes out every field, defaults too, so that FromProto gives `options` back.
v1::TableOptions ToProto(const TableOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_
