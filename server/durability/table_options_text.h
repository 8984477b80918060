// A table's options as text: one line of JSON, as manifests have it, that comes back to the bit.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_TEXT_H_
#define SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_TEXT_H_

#include <string>
#include <string_view>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

class JsonFields;

// The one list of all options: one flat object, with floats to the bit. A reader complains of what cannot
// make a table.
void ListTableOptions(JsonFields& fields, TableOptions& options);

std::string ToText(const TableOptions& options);

// DATA_LOSS, with the field: the text is not the options of a table.
Result<TableOptions> TableOptionsFromText(std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_TABLE_OPTIONS_TEXT_H_
