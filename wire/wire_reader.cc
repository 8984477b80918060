#include "wire/wire_reader.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <string>

namespace slotwise {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

const ArrayField* FindArray(std::span<const ArrayField> arrays, std::uint32_t tag) {
  // By protobuf's rules, a field with an array's number but another wire type is an unknown field.
  if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return nullptr;
  for (const ArrayField& array : arrays) {
    if (array.number == WireFormatLite::GetTagFieldNumber(tag)) return &array;
  }
  return nullptr;
}

bool ReadPieces(CodedInputStream& in, int size,
                const std::function<void(std::span<const std::byte>)>& take_piece) {
  while (size > 0) {
    const void* data = nullptr;
    int there = 0;
    if (!in.GetDirectBufferPointer(&data, &there)) return false;
    const int taken = std::min(there, size);
    take_piece({static_cast<const std::byte*>(data), static_cast<std::size_t>(taken)});
    if (!in.Skip(taken)) return false;
    size -= taken;
  }
  return true;
}

bool ReadArray(CodedInputStream& in, std::size_t message_size, const ArrayField& array) {
  int size = 0;
  if (!in.ReadVarintSizeAsInt(&size)) return false;
  const auto position = static_cast<std::size_t>(in.CurrentPosition());
  if (static_cast<std::size_t>(size) > message_size - position) return false;
  void* room = array.make_room(static_cast<std::size_t>(size));
  if (room == nullptr) return in.Skip(size);
  return array.take_piece ? ReadPieces(in, size, array.take_piece) : in.ReadRaw(room, size);
}

// Splits the message: array fields go to their destinations, and all other fields, unchanged, to `others`.
bool Split(CodedInputStream& in, std::size_t message_size, std::span<const ArrayField> arrays,
           CodedOutputStream& others) {
  for (;;) {
    const std::uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage();
    const ArrayField* array = FindArray(arrays, tag);
    if (array != nullptr ? !ReadArray(in, message_size, *array)
                         : !WireFormatLite::SkipField(&in, tag, &others)) {
      return false;
    }
  }
}

Status Malformed(const google::protobuf::MessageLite& message, int position) {
  const std::string type = message.GetTypeName();
  return InvalidArgument(
             (type.ends_with("Reply") ? "the reply is not a valid " : "the request is not a valid ") + type +
             ": cut short or malformed near byte " + std::to_string(position))
      .Because(Reason::kMalformed);
}

}  // namespace

Status ReadMessage(const grpc::ByteBuffer& bytes, std::span<const ArrayField> arrays,
                   google::protobuf::MessageLite& message) {
  grpc::ByteBuffer slices = bytes;  // the reader needs a mutable buffer; the copy shares the slices
  grpc::ProtoBufferReader reader(&slices);
  const std::size_t size = slices.Length();
  CodedInputStream in(&reader);
  // The limit lets the stream refuse a length past the end before it allocates for it.
  in.PushLimit(static_cast<int>(size));

  std::string others;
  StringOutputStream others_stream(&others);
  {
    CodedOutputStream out(&others_stream);
    if (!Split(in, size, arrays, out)) return Malformed(message, in.CurrentPosition());
  }
  if (!message.ParseFromString(others)) return Malformed(message, in.CurrentPosition());
  return {};
}

}  // namespace slotwise
