#include "server/rpc/encode.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/slice.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "slotwise/v1/embedding.pb.h"

namespace slotwise {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// The reply's small fields, then the tag and the length of `values`, whose bytes follow.
std::string HeaderOf(std::uint32_t samples, std::uint32_t width, std::size_t value_bytes) {
  v1::LookupReply reply;
  reply.set_samples(samples);
  reply.set_width(width);
  reply.set_data_type(v1::DATA_TYPE_FLOAT32);
  std::string header = reply.SerializeAsString();
  if (value_bytes == 0) return header;  // proto3 leaves an empty field out

  StringOutputStream stream(&header);  // appends
  CodedOutputStream out(&stream);
  out.WriteTag(WireFormatLite::MakeTag(v1::LookupReply::kValuesFieldNumber,
                                       WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out.WriteVarint64(value_bytes);
  out.Trim();
  return header;
}

// A slice over the values' own memory; its last reference lets go of them.
grpc::Slice Share(PooledValues values) {
  const std::size_t bytes = values.size * sizeof(float);
  auto owner = std::make_unique<std::shared_ptr<const float[]>>(std::move(values.values));
  // gRPC's slices are read-only, though their constructor does not say so.
  void* memory = const_cast<float*>(owner->get());
  const auto release = [](void* held) { delete static_cast<std::shared_ptr<const float[]>*>(held); };
  return {memory, bytes, release, owner.release()};
}

}  // namespace

grpc::ByteBuffer EncodeLookupReply(std::uint32_t samples, std::uint32_t width, PooledValues values) {
  const grpc::Slice header(HeaderOf(samples, width, values.size * sizeof(float)));
  if (values.size == 0) return {&header, 1};
  const std::array slices{header, Share(std::move(values))};
  return {slices.data(), slices.size()};
}

grpc::ByteBuffer EncodePushReply(std::uint64_t table_step) {
  v1::PushReply reply;
  reply.set_table_step(table_step);
  const grpc::Slice bytes(reply.SerializeAsString());
  return {&bytes, 1};
}

}  // namespace slotwise
