#include "wire/wire_writer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

namespace slotwise {

using google::protobuf::internal::WireFormatLite;

void AppendArrayHeader(int field, std::size_t size, std::string& message) {
  if (size == 0) return;
  google::protobuf::io::StringOutputStream stream(&message);  // appends
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out.WriteVarint64(size);
  out.Trim();
}

}  // namespace slotwise
