// Messages that hold nothing but one repeated field of large messages: taken apart and put together without copying
// what is in them.
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

// A message takes two bytes on the wire and hundreds in memory, so there is a bound.
inline constexpr std::size_t kMostMessages = 65'536;

// The messages of the repeated field `field`, in order; each shares the memory of `bytes`. Other fields are skipped.
// INVALID_ARGUMENT if `bytes` are no message (cut short, or a length past the end), or hold more than kMostMessages of
// the field. `type` names it there.
Result<std::vector<grpc::ByteBuffer>> SplitMessages(const grpc::ByteBuffer& bytes, int field,
                                                    std::string_view type);

// The message whose repeated field `field` holds `messages`; it shares their memory.
grpc::ByteBuffer JoinMessages(int field, std::span<const grpc::ByteBuffer> messages);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_NESTED_H_
