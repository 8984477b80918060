// CompareWithProtobuf checks that the data path's reader and protobuf's agree on a message.
// Thread-safety: free functions.
#ifndef SLOTWISE_TESTS_RPC_COMPARE_READERS_H_
#define SLOTWISE_TESTS_RPC_COMPARE_READERS_H_

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "server/intake/wire_array.h"
#include "slotwise/v1/embedding.pb.h"
#include "tests/rpc/messages.h"
#include "wire/wire_reader.h"

namespace slotwise {

struct Comparison {
  bool taken = false;      // both readers accept the message
  std::string difference;  // "" if the readers agree
};

// Reads `bytes` as a v1.PushRequest, with protobuf's parser and, in slices of `slice` bytes, with the data
// path's reader: keys and offsets whole, gradients piece by piece. Protobuf's parser refuses tags of more
// than 5 bytes, which the data path's reader accepts. A message with such tags is compared with short tags
// instead.
inline Comparison CompareWithProtobuf(std::string_view bytes, std::size_t slice) {
  v1::PushRequest expected;
  const bool ok = expected.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));

  v1::PushRequest fields;
  WireArray<Key> keys;
  WireArray<std::uint32_t> offsets;
  WireArray<float> gradients;
  std::string pieces;
  std::size_t most = 0;  // the largest room asked for, in bytes
  const ArrayField in_pieces{16,
                             [&](std::size_t size) {
                               pieces.clear();
                               most = std::max(most, size);
                               return gradients.MakeRoom(size);
                             },
                             [&](std::span<const std::byte> piece) {
                               pieces.append(reinterpret_cast<const char*>(piece.data()), piece.size());
                             }};
  const std::array arrays{ReadInto(14, keys), ReadInto(15, offsets), in_pieces};
  const Status status = ReadMessage(BufferOf(bytes, slice), arrays, fields);
  if (most > bytes.size()) return {false, "room was asked for more than the message holds"};
  if (status.ok() && !ok) {
    google::protobuf::UnknownFieldSet any;
    std::string short_tags;
    const bool parsed = any.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    if (parsed && any.SerializeToString(&short_tags) && short_tags != bytes) {
      return CompareWithProtobuf(short_tags, slice);
    }
  }
  if (status.ok() != ok) return {false, "only one reader takes it: " + status.message()};
  if (!ok) return {};

  const auto differs = [](const std::string& field) { return Comparison{true, field + " differs"}; };
  if (keys.bytes != expected.keys().size()) return differs("the size of keys");
  if (offsets.bytes != expected.offsets().size()) return differs("the size of offsets");
  if (gradients.bytes != expected.gradients().size()) return differs("the size of gradients");
  if (keys.whole() && BytesOf<Key>(keys.values.span()) != expected.keys()) return differs("keys");
  if (offsets.whole() && BytesOf<std::uint32_t>(offsets.values.span()) != expected.offsets()) {
    return differs("offsets");
  }
  if (gradients.whole() && pieces != expected.gradients()) return differs("gradients");
  expected.clear_keys();
  expected.clear_offsets();
  expected.clear_gradients();
  if (fields.SerializeAsString() != expected.SerializeAsString()) return differs("a small field");
  return {.taken = true, .difference = ""};
}

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_RPC_COMPARE_READERS_H_
