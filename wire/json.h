// Converts messages to protobuf's JSON with the fields' own names, which options and replies have everywhere.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_JSON_H_
#define SLOTWISE_WIRE_JSON_H_

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Returns a message as one line of JSON. Fields with default values are left out, unless `say_defaults`;
// absent submessages are always left out.
std::string ToJson(const google::protobuf::Message& message, bool say_defaults = false);

// Does the same with `say_defaults`, and a line for each field.
std::string ToJsonLines(const google::protobuf::Message& message);

// Reads a message. INVALID_ARGUMENT: the text is not JSON of such a message; an unknown field is refused,
// too.
Status FromJson(std::string_view text, google::protobuf::Message& message);

// The same for a table's options, with every option written; floats come back to the bit. Options that the
// text leaves out get their defaults. INVALID_ARGUMENT also if no table can have the options.
std::string ToJson(const TableOptions& options);
Result<TableOptions> TableOptionsFromJson(std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_JSON_H_
