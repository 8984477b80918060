// Requests for the tests of the rpc room: a table, batches for it, and messages as byte buffers in slices.
#ifndef SLOTWISE_TESTS_RPC_MESSAGES_H_
#define SLOTWISE_TESTS_RPC_MESSAGES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/engine.h"
#include "server/intake/quoted.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise {

// Returns `bytes` in slices of `slice` bytes.
inline grpc::ByteBuffer BufferOf(std::string_view bytes,
                                 std::size_t slice = std::numeric_limits<std::size_t>::max()) {
  std::vector<grpc::Slice> slices;
  for (std::size_t begin = 0; begin < bytes.size(); begin += std::min(slice, bytes.size() - begin)) {
    const std::string_view piece = bytes.substr(begin, slice);
    slices.emplace_back(piece.data(), piece.size());
  }
  if (slices.empty()) slices.emplace_back();
  return {slices.data(), slices.size()};
}

inline std::string StringOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return {};
  std::string bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string BytesOf(std::span<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline TableOptions AdsTable() {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = 3;
  options.slots = 2;
  return options;
}

// Finds the only table: "ads", number 7, dim 3, slots 2.
inline Result<TableInfo> FindAds(std::string_view name, Rights) {
  if (name != "ads") return NotFound("there is no table " + Quoted(name));
  return TableInfo{TableId{7}, AdsTable()};
}

// Makes a lookup of two samples, with bags {5}, {}, {largest key, 5}, {0}.
inline v1::LookupRequest SmallLookup() {
  v1::LookupRequest message;
  message.set_table("ads");
  message.set_mode(v1::LOOKUP_MODE_EVAL);
  message.set_samples(2);
  message.mutable_acknowledged()->set_incarnation(9);
  message.mutable_acknowledged()->set_table_step(5);
  message.set_keys(BytesOf<std::uint64_t>({5, ~std::uint64_t{0}, 5, 0}));
  message.set_offsets(BytesOf<std::uint32_t>({0, 1, 1, 3, 4}));
  return message;
}

// Makes a push of the same batch, as part 1 of 3 of step 41; the gradients are 0, 1, 2, ...
inline v1::PushRequest SmallPush() {
  v1::PushRequest message;
  message.set_table("ads");
  message.mutable_step()->set_session(0x1234'5678'9abc'def0u);
  message.mutable_step()->set_number(41);
  message.mutable_step()->set_part(1);
  message.mutable_step()->set_parts(3);
  message.set_samples(2);
  message.set_data_type(v1::DATA_TYPE_FLOAT32);
  message.set_keys(SmallLookup().keys());
  message.set_offsets(SmallLookup().offsets());
  std::vector<float> gradients(12);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i);
  message.set_gradients(BytesOf(gradients));
  return message;
}

// Makes a whole step `number` with the same batch, in one part.
inline v1::PushRequest WholePush(std::uint64_t number) {
  v1::PushRequest push = SmallPush();
  push.mutable_step()->set_number(number);
  push.mutable_step()->set_part(0);
  push.mutable_step()->set_parts(1);
  return push;
}

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_RPC_MESSAGES_H_
