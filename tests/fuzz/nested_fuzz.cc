// Compares SplitMessages with protobuf's own reader, and checks that JoinMessages inverts it.
#include <google/protobuf/unknown_field_set.h>

#include <string>

#include "tests/fuzz/fuzz.h"
#include "wire/nested.h"

namespace slotwise::fuzz {
namespace {

constexpr int kField = 1;

// Returns the messages of the field as protobuf reads fields that it does not know.
std::optional<std::vector<std::string>> Expected(std::string_view bytes) {
  google::protobuf::UnknownFieldSet fields;
  if (!fields.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  std::vector<std::string> messages;
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() == kField && field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      messages.push_back(field.length_delimited());
    }
  }
  return messages;
}

std::vector<std::string> Split(const grpc::ByteBuffer& bytes, bool taken) {
  const auto messages = SplitMessages(bytes, kField, "message");
  Require(messages.ok() == taken, "that protobuf's reader takes the same messages");
  std::vector<std::string> split;
  if (!messages.ok()) return split;
  for (const grpc::ByteBuffer& message : *messages) split.push_back(StringOf(message));
  const auto joined = SplitMessages(JoinMessages(kField, *messages), kField, "message");
  Require(joined.ok() && joined->size() == split.size(), "that joined messages are split again");
  for (std::size_t i = 0; i < split.size(); ++i) {
    Require(StringOf((*joined)[i]) == split[i], "that a message stays the same");
  }
  return split;
}

}  // namespace

void Run(std::string_view bytes) {
  const auto expected = Expected(bytes);
  const bool taken = expected && expected->size() <= kMostMessages;
  const auto whole = Split(BufferOf(bytes), taken);
  Require(whole == Split(InSlices(bytes), taken), "that slices make no difference");
  if (taken) Require(whole == *expected, "that protobuf's reader finds the same messages");
}

}  // namespace slotwise::fuzz
