#include "wire/nested.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpc/slice.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace slotwise {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// Bytes [begin, end) of a message.
struct Place {
  std::size_t begin;
  std::size_t end;
};

bool FindMessages(CodedInputStream& in, std::size_t size, int field, std::vector<Place>& places) {
  const std::uint32_t wanted = WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  for (;;) {
    const std::uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage();
    if (tag != wanted) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    int length = 0;
    if (!in.ReadVarintSizeAsInt(&length)) return false;
    const auto begin = static_cast<std::size_t>(in.CurrentPosition());
    if (static_cast<std::size_t>(length) > size - begin || !in.Skip(length)) return false;
    places.push_back({begin, begin + static_cast<std::size_t>(length)});
    if (places.size() > kMostMessages) return true;
  }
}

// Cuts places, in order, out of the bytes of several slices.
class Cutter {
 public:
  explicit Cutter(const std::vector<grpc::Slice>& slices) : slices_(slices) {}

  // REQUIRES: `place` does not begin before the end of the last place.
  grpc::ByteBuffer Cut(Place place) {
    std::vector<grpc::Slice> pieces;
    for (; slice_ < slices_.size(); first_ += slices_[slice_++].size()) {
      const std::size_t after = first_ + slices_[slice_].size();
      const std::size_t begin = std::max(place.begin, first_);
      const std::size_t end = std::min(place.end, after);
      if (begin < end) {
        grpc_slice whole = slices_[slice_].c_slice();
        pieces.emplace_back(grpc_slice_sub(whole, begin - first_, end - first_), grpc::Slice::STEAL_REF);
        grpc_slice_unref(whole);
      }
      if (after > place.end) break;  // the next place may begin in this slice
    }
    if (pieces.empty()) pieces.emplace_back();  // a byte buffer without slices is not valid
    return {pieces.data(), pieces.size()};
  }

 private:
  const std::vector<grpc::Slice>& slices_;
  std::size_t slice_ = 0;
  std::size_t first_ = 0;  // where the slice begins in the whole message
};

}  // namespace

Result<std::vector<grpc::ByteBuffer>> SplitMessages(const grpc::ByteBuffer& bytes, int field,
                                                    std::string_view type) {
  grpc::ByteBuffer shared = bytes;  // the reader needs a mutable buffer
  std::vector<Place> places;
  {
    grpc::ProtoBufferReader reader(&shared);
    CodedInputStream in(&reader);
    in.PushLimit(static_cast<int>(shared.Length()));
    if (!FindMessages(in, shared.Length(), field, places)) {
      return InvalidArgument("the request is not a valid " + std::string(type) +
                             ": cut short or malformed near byte " + std::to_string(in.CurrentPosition()))
          .Because(Reason::kMalformed);
    }
    if (places.size() > kMostMessages) {
      return InvalidArgument("the " + std::string(type) + " holds more than " +
                             std::to_string(kMostMessages) + " requests")
          .Because(Reason::kMalformed);
    }
  }
  std::vector<grpc::Slice> slices;
  if (!shared.Dump(&slices).ok())
    return InvalidArgument("the request is compressed in a way that is not known")
        .Because(Reason::kMalformed);
  std::vector<grpc::ByteBuffer> messages;
  messages.reserve(places.size());
  Cutter cutter(slices);
  for (const Place& place : places) messages.push_back(cutter.Cut(place));
  return messages;
}

grpc::ByteBuffer JoinMessages(int field, std::span<const grpc::ByteBuffer> messages) {
  std::vector<grpc::Slice> pieces;
  for (const grpc::ByteBuffer& message : messages) {
    std::string header;
    {
      StringOutputStream stream(&header);
      CodedOutputStream out(&stream);
      out.WriteTag(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
      out.WriteVarint64(message.Length());
    }
    pieces.emplace_back(header);
    std::vector<grpc::Slice> slices;
    if (message.Dump(&slices).ok()) pieces.insert(pieces.end(), slices.begin(), slices.end());
  }
  if (pieces.empty()) pieces.emplace_back();
  return {pieces.data(), pieces.size()};
}

}  // namespace slotwise
