// Protobuf's JSON of messages, with the fields' own names: the one text of options and replies.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_JSON_H_
#define SLOTWISE_WIRE_JSON_H_

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "slotwise/status.h"
#include "slotwise/table_options.h"

namespace slotwise {

// Returns a message as one line of JSON. Fields that have their defaults are left out, unless they are to be
// said: then all but messages that are not there are written.
std::string ToJson(const google::protobuf::Message& message, bool say_defaults = false);

// The same, with a line for each field.
std::string ToJsonLines(const google::protobuf::Message& message);

// Reads a message. INVALID_ARGUMENT: the text is no JSON of such a message, for example for a field that the
// message does not have.
Status FromJson(std::string_view text, google::protobuf::Message& message);

// The same of a table's options, every option said; floats come back to the bit. Options that the text leaves
// out have their defaults. INVALID_ARGUMENT: also if the options cannot make a table.
std::string ToJson(const TableOptions& options);
Result<TableOptions> TableOptionsFromJson(std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_JSON_H_
