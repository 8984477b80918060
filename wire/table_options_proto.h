// TableOptions between its two spellings: the wire's, where what is left out has a default, and Slotwise's own.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_
#define SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_

#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {

// With the defaults that admin.proto names filled in, and checked: INVALID_ARGUMENT names the field and its value.
Result<TableOptions> FromProto(const v1::TableOptions& wire);

// Every field written out, defaults too, so that FromProto gives `options` back.
v1::TableOptions ToProto(const TableOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_TABLE_OPTIONS_PROTO_H_
