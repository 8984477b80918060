// A table's options as text: one line of JSON, as manifests have it, that comes back to the bit.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_TEXT_H_
#define SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_TEXT_H_

#include <string>
#include <string_view>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

std::string ToText(const TableOptions& options);

// DATA_LOSS, with the field: the text is not the options of a table.
Result<TableOptions> TableOptionsFromText(std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_TEXT_H_
