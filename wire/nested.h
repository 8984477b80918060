// Splits and joins messages that hold nothing but one repeated field of large messages, without copying those
// messages.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_NESTED_H_
#define SLOTWISE_WIRE_NESTED_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

// Bounds how many messages SplitMessages takes, because an empty message takes two bytes on the wire and
// hundreds in memory.
inline constexpr std::size_t kMostMessages = 65'536;

// Returns the messages of the repeated field `field`, in order; each shares the memory of `bytes`. Skips
// other fields. INVALID_ARGUMENT, with `type`: `bytes` are not a message (cut short, or a length past the
// end), or hold more than kMostMessages messages of the field.
Result<std::vector<grpc::ByteBuffer>> SplitMessages(const grpc::ByteBuffer& bytes, int field,
                                                    std::string_view type);

// Returns the message whose repeated field `field` holds `messages`, and which shares their memory.
grpc::ByteBuffer JoinMessages(int field, std::span<const grpc::ByteBuffer> messages);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_NESTED_H_
