// A table's options as one flat JSON object: every field, floats exactly.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_JSON_H_
#define SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_JSON_H_

#include <nlohmann/json.hpp>

#include "server/durability/json_fields.h"
#include "slotwise/table_options.h"

namespace slotwise {

nlohmann::ordered_json ToJson(const TableOptions& options);

// Complains through `fields` unless they are options that can make a table.
TableOptions ParseTableOptions(Fields fields);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_JSON_H_
