// Writes protobuf messages that have their large arrays after their small fields, so that an array is copied
// at most once.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_WIRE_WRITER_H_
#define SLOTWISE_WIRE_WIRE_WRITER_H_

#include <cstddef>
#include <string>

namespace slotwise {

// Appends to `message`, which holds serialised fields, the tag and length of a `bytes` field. The field's
// `size` bytes must follow. Appends nothing if `size` is 0, because proto3 leaves an empty field out.
void AppendArrayHeader(int field, std::size_t size, std::string& message);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_WIRE_WRITER_H_
