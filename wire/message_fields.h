// What is learned of a protobuf message before it is parsed. Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_MESSAGE_FIELDS_H_
#define SLOTWISE_WIRE_MESSAGE_FIELDS_H_

#include <cstddef>
#include <optional>
#include <span>

namespace slotwise {

// Counts the fields of a message, known or not, each element of a repeated one that is not packed; of
// submessages none. Returns nothing if the bytes are no message, or one with groups, which proto3 has not. An
// empty submessage takes two bytes there, and a hundred once it is parsed.
std::optional<std::size_t> CountFields(std::span<const std::byte> message);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_MESSAGE_FIELDS_H_
