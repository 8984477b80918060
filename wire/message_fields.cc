#include "wire/message_fields.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <limits>

namespace slotwise {

std::optional<std::size_t> CountFields(std::span<const std::byte> message) {
  using google::protobuf::internal::WireFormatLite;
  if (message.size() > std::numeric_limits<int>::max()) return std::nullopt;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(message.data()),
                                            static_cast<int>(message.size()));
  std::size_t fields = 0;
  for (; !in.ExpectAtEnd(); ++fields) {
    const std::uint32_t tag = in.ReadTagNoLastTag();
    std::uint64_t number = 0;
    std::uint32_t size = 0;
    bool read = false;
    switch (tag == 0 ? WireFormatLite::WIRETYPE_END_GROUP : WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        read = in.ReadVarint64(&number);
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        read = in.ReadVarint32(&size) && size <= message.size() && in.Skip(static_cast<int>(size));
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        read = in.Skip(sizeof(std::uint64_t));
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        read = in.Skip(sizeof(std::uint32_t));
        break;
      default:
        break;
    }
    if (!read) return std::nullopt;
  }
  return fields;
}

}  // namespace slotwise
