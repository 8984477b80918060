// A table's options as text, in manifests and journals: protobuf's JSON (wire/json.h), which comes back to
// the bit. 0.1.0 wrote one flat object, which has the constants of all optimizers, and no later option.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_OPTIONS_TEXT_H_
#define SLOTWISE_SERVER_DURABILITY_OPTIONS_TEXT_H_

#include <string>
#include <string_view>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

class CheckedFields;

std::string OptionsText(const TableOptions& options);

// DATA_LOSS, with the field: the text is not the options of a table.
Result<TableOptions> OptionsFromText(std::string_view text);
Result<TableOptions> FlatOptionsFromText(std::string_view text);

// Reads each option of 0.1.0's object, and complains of what cannot make a table.
void ListFlatOptions(CheckedFields& fields, TableOptions& options);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_OPTIONS_TEXT_H_
