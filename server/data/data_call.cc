#include "server/data/data_call.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>

#include "wire/frame_stream.h"
#include "wire/message_fields.h"

namespace slotwise {
namespace {

// Bounds how many messages a call may have: an empty one takes a few bytes on the wire and hundreds in
// memory.
constexpr int kMostMessages = 65'536;

std::uint64_t PaddedSum(const v1::DataArrays& arrays) {
  return PaddedBytes(arrays.keys()) + PaddedBytes(arrays.gradients()) + PaddedBytes(arrays.offsets()) +
         PaddedBytes(arrays.weights());
}

constexpr const char* kArraysInMessage = "a message has arrays of its own, beside those of the body";

template <class Message>
bool HasArrays(const Message& message) {
  return !message.keys().empty() || !message.offsets().empty() || !message.weights().empty();
}

std::uint64_t BytesOfValue(const CheckedLookup& lookup) {
  return std::uint64_t{lookup.request.batch.samples} * lookup.width * BytesOf(lookup.request.type);
}

// Returns the arrays of a body, one after the other.
class BodyReader {
 public:
  explicit BodyReader(std::shared_ptr<std::byte[]> block) : block_(std::move(block)) {}

  template <class T>
  BatchArray<T> Take(std::uint64_t bytes) {
    if (bytes == 0) return {};
    T* const array = reinterpret_cast<T*>(block_.get() + at_);
    at_ += PaddedBytes(bytes);
    return {std::shared_ptr<T[]>(block_, array), (bytes + sizeof(T) - 1) / sizeof(T)};
  }
  template <class T>
  WireArray<T> TakeWhole(std::uint64_t bytes) {
    BatchArray<T> array = Take<T>(bytes);
    WireArray<T> wire{.bytes = bytes};
    if (wire.whole()) wire.values = std::move(array);
    return wire;
  }

 private:
  const std::shared_ptr<std::byte[]> block_;
  std::uint64_t at_ = 0;
};

template <class Message, class Checked, class Check>
Result<std::vector<Checked>> CheckAll(const v1::DataCall& call, const std::shared_ptr<std::byte[]>& block,
                                      const google::protobuf::RepeatedPtrField<Message>& messages,
                                      std::string_view field, const Check& check) {
  std::vector<Checked> all;
  all.reserve(static_cast<std::size_t>(messages.size()));
  BodyReader body(block);
  for (int i = 0; i < messages.size(); ++i) {
    const v1::DataArrays& bytes = call.arrays(i);
    BatchArrays arrays;
    arrays.keys = body.TakeWhole<Key>(bytes.keys());
    WireNumbers gradients{.words = body.Take<float>(bytes.gradients()), .bytes = bytes.gradients()};
    arrays.offsets = body.TakeWhole<std::uint32_t>(bytes.offsets());
    arrays.weights = body.TakeWhole<float>(bytes.weights());
    auto checked = check(messages[i], std::move(arrays), std::move(gradients));
    if (!checked.ok()) {
      return call.many() ? WithPlace(field, static_cast<std::size_t>(i), checked.status()) : checked.status();
    }
    all.push_back(std::move(*checked));
  }
  return all;
}

}  // namespace

std::string HeadObjection(std::span<const std::byte> head) {
  // Each message has an element of `arrays`, and there are a few other fields.
  constexpr std::size_t kMostFields = 2 * std::size_t{kMostMessages} + 64;
  const auto fields = CountFields(head);
  if (!fields) return "a frame's head is no DataCall";
  if (*fields <= kMostFields) return {};
  return "a call has more than " + std::to_string(kMostMessages) + " messages, or fields that are none";
}

std::string Objection(const v1::DataCall& call, std::uint64_t body_bytes, bool on_device) {
  const int messages = call.lookups_size() + call.pushes_size();
  if (call.lookups_size() > 0 && call.pushes_size() > 0) return "a call has lookups and pushes";
  if (messages > kMostMessages) {
    return "a call has " + std::to_string(messages) + " messages: at most " + std::to_string(kMostMessages);
  }
  if (!call.many() && messages != 1) return "a call of one message has " + std::to_string(messages);
  if (call.arrays_size() != messages) return "a call has arrays of other than its messages";
  for (const v1::LookupRequest& lookup : call.lookups()) {
    if (HasArrays(lookup)) return kArraysInMessage;
  }
  for (const v1::PushRequest& push : call.pushes()) {
    if (HasArrays(push) || !push.gradients().empty()) return kArraysInMessage;
  }
  std::uint64_t sum = 0;
  for (const v1::DataArrays& arrays : call.arrays()) {
    if (call.lookups_size() > 0 && arrays.gradients() > 0) return "a lookup has gradients";
    for (const std::uint64_t bytes :
         {arrays.keys(), arrays.gradients(), arrays.offsets(), arrays.weights()}) {
      if (bytes > body_bytes) return "an array is longer than its frame's body";
    }
    if (arrays.wide_offsets() && !on_device)
      return "a call has wide offsets, and its arrays lie on no device";
    sum += PaddedSum(arrays);
    if (sum > body_bytes) break;
  }
  if (sum != body_bytes) return "a frame's body is not as long as its arrays";
  if (call.timeout_ms() == 0) return "a call has no timeout";
  return {};
}

Result<std::vector<CheckedLookup>> CheckLookups(const v1::DataCall& call,
                                                const std::shared_ptr<std::byte[]>& body,
                                                const FindTable& find_table) {
  return CheckAll<v1::LookupRequest, CheckedLookup>(
      call, body, call.lookups(), kLookups,
      [&find_table](const v1::LookupRequest& message, BatchArrays arrays, WireNumbers) {
        return CheckLookup(message, std::move(arrays), find_table);
      });
}

Result<std::vector<PushRequest>> CheckPushes(const v1::DataCall& call,
                                             const std::shared_ptr<std::byte[]>& body,
                                             const FindTable& find_table) {
  return CheckAll<v1::PushRequest, PushRequest>(
      call, body, call.pushes(), kPushes,
      [&find_table](const v1::PushRequest& message, BatchArrays arrays, WireNumbers gradients) {
        return CheckPush(message, std::move(arrays), std::move(gradients), find_table);
      });
}

std::uint64_t BytesOfValues(const std::vector<CheckedLookup>& lookups) {
  std::uint64_t sum = 0;
  for (const CheckedLookup& lookup : lookups) sum += PaddedBytes(BytesOfValue(lookup));
  return sum;
}

bool PlaceValues(std::span<std::byte> values, const std::shared_ptr<void>& owner, bool on_device,
                 std::vector<CheckedLookup>& lookups) {
  if (BytesOfValues(lookups) > values.size()) return false;
  std::byte* at = values.data();
  for (CheckedLookup& lookup : lookups) {
    const std::uint64_t bytes = BytesOfValue(lookup);
    if (bytes > 0) lookup.request.place = std::shared_ptr<std::byte[]>(owner, at);
    lookup.request.place_on_device = on_device && bytes > 0;
    at += PaddedBytes(bytes);
  }
  return true;
}

Result<EmbeddingAnswers> WithoutLateRows(const Caller& caller, Result<EmbeddingAnswers> answers) {
  const bool rows =
      answers.ok() && !answers->empty() && std::holds_alternative<LookupAnswer>(answers->front());
  if (!rows || !caller.late()) return answers;
  return DeadlineExceeded("the deadline passed before the rows were sent");
}

}  // namespace slotwise
