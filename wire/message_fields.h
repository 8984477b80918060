// Counts a protobuf message's fields before it is parsed. Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_MESSAGE_FIELDS_H_
#define SLOTWISE_WIRE_MESSAGE_FIELDS_H_

#include <cstddef>
#include <optional>
#include <span>

namespace slotwise {

// Counts the fields of a message, known or unknown, and each element of a repeated field that is not packed.
// Does not count the fields of submessages. Returns nothing if the bytes are not a message, or have groups,
// which proto3 does not know. The count bounds memory: an empty submessage takes two bytes on the wire, and a
// hundred once parsed.
std::optional<std::size_t> CountFields(std::span<const std::byte> message);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_MESSAGE_FIELDS_H_
