#include "server/data/device_call.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "wire/array_align.h"

namespace slotwise {
namespace {

static_assert(ArrivingArray::kAlign == kArrayAlign);

// Returns how many offsets are written for a message that leaves them out.
std::uint64_t UnitOffsets(const v1::DataArrays& arrays) { return arrays.keys() / sizeof(Key) + 1; }

// A message's arrays in the copy, and the device's findings on them.
struct Message {
  BatchArrays arrays;
  WireNumbers gradients;
  FoundArrays found;
};

// Copies all arrays of a call to device memory of the call's own.
class CopiedCall {
 public:
  // The arguments outlive it.
  CopiedCall(const v1::DataCall& call, DeviceBody& body, const FindTable& find_table)
      : body_(body.bytes), arrivals_(body.arrivals), find_table_(find_table) {
    struct Charged {
      std::shared_ptr<std::byte[]> copies;
      Reservation charge;
    };
    const auto charged =
        std::make_shared<Charged>(Charged{arrivals_.Take(BytesOfCopies(call)), std::move(body.charge)});
    block_ = {charged, charged->copies.get()};
    messages_.resize(static_cast<std::size_t>(call.arrays_size()));
    for (int i = 0; i < call.lookups_size(); ++i) Plan(call.lookups(i), call.arrays(i), i);
    for (int i = 0; i < call.pushes_size(); ++i) Plan(call.pushes(i), call.arrays(i), i);
    std::vector<ArrivedArray> found(planned_.size());
    arrivals_.Copy(planned_, found);
    for (std::size_t i = 0; i < found.size(); ++i) *goes_to_[i] = found[i];
  }

  Message& at(int message) { return messages_[static_cast<std::size_t>(message)]; }

 private:
  using Kind = ArrivingArray::Kind;

  // Plans the copies of a message's arrays. The later check refuses invalid fields.
  template <class AnyMessage>
  void Plan(const AnyMessage& message, const v1::DataArrays& bytes, int i) {
    Message& its = at(i);
    its.found.by = &arrivals_;
    its.arrays.found = &its.found;
    // The caller's rights are checked with the message.
    const auto table = find_table_(message.table(), Rights::kNone);
    const bool one_key_a_bag = table.ok() && table->options.combiner == Combiner::kNone;
    const auto type = CheckDataType(message.data_type(), "data_type");
    Take(its.arrays.keys, bytes.keys(), {.kind = Kind::kKeys}, its.found.keys);
    its.gradients.bytes = bytes.gradients();
    const DataType numbers = type.ok() ? *type : DataType::kFloat32;
    const std::uint64_t words = (bytes.gradients() + sizeof(float) - 1) / sizeof(float);
    its.gradients.words = {Next<float>(PaddedBytes(bytes.gradients())), words};
    Plan({.kind = Kind::kNumbers,
          .type = numbers,
          .from = From(bytes.gradients()),
          .to = its.gradients.words.data(),
          .size = bytes.gradients() / BytesOf(numbers)},
         its.found.gradients);
    const std::uint64_t keys = bytes.keys() / sizeof(Key);
    if (bytes.offsets() > 0 && bytes.wide_offsets()) {
      its.found.wide_offsets = true;
      const std::uint64_t count = bytes.offsets() / sizeof(std::uint64_t);
      WireArray<std::uint32_t>& offsets = its.arrays.offsets;
      offsets.bytes = bytes.offsets();
      offsets.values = {Next<std::uint32_t>(PaddedBytes(count * sizeof(std::uint32_t))), count};
      Plan({.kind = Kind::kWideOffsets,
            .one_key_a_bag = one_key_a_bag,
            .from = From(bytes.offsets()),
            .to = offsets.values.data(),
            .size = count,
            .last = keys},
           its.found.offsets);
    } else if (bytes.offsets() > 0) {
      Take(its.arrays.offsets, bytes.offsets(),
           {.kind = Kind::kOffsets, .one_key_a_bag = one_key_a_bag, .last = keys}, its.found.offsets);
    } else {
      const std::uint64_t count = UnitOffsets(bytes);
      its.arrays.offsets.values = {Next<std::uint32_t>(PaddedBytes(count * sizeof(std::uint32_t))), count};
      Plan({.kind = Kind::kUnitOffsets, .to = its.arrays.offsets.values.data(), .size = count},
           its.found.offsets);
    }
    Take(its.arrays.weights, bytes.weights(), {.kind = Kind::kNumbers}, its.found.weights);
  }

  template <class T>
  void Take(WireArray<T>& array, std::uint64_t bytes, ArrivingArray planned, ArrivedArray& found) {
    const std::uint64_t count = bytes / sizeof(T);
    array.bytes = bytes;
    array.values = {bytes > 0 ? Next<T>(PaddedBytes(bytes)) : nullptr, count};
    planned.from = From(bytes);
    planned.to = array.values.data();
    planned.size = count;
    Plan(planned, found);
  }

  void Plan(const ArrivingArray& planned, ArrivedArray& found) {
    if (planned.size == 0) return;
    planned_.push_back(planned);
    goes_to_.push_back(&found);
  }

  // Return the next bytes of the body, and of the copy.
  const std::byte* From(std::uint64_t bytes) {
    const std::byte* const from = body_.data() + from_;
    from_ += PaddedBytes(bytes);
    return from;
  }
  template <class T>
  std::shared_ptr<T[]> Next(std::uint64_t padded) {
    T* const at = reinterpret_cast<T*>(block_.get() + to_);
    to_ += padded;
    return {block_, at};
  }

  const std::span<const std::byte> body_;
  IngestCopy& arrivals_;
  const FindTable& find_table_;
  std::shared_ptr<std::byte[]> block_;
  std::uint64_t from_ = 0;
  std::uint64_t to_ = 0;
  std::vector<Message> messages_;
  std::vector<ArrivingArray> planned_;
  std::vector<ArrivedArray*> goes_to_;
};

Status Placed(const v1::DataCall& call, std::string_view field, int i, const Status& why) {
  return call.many() ? WithPlace(field, static_cast<std::size_t>(i), why) : why;
}

}  // namespace

std::uint64_t BytesOfCopies(const v1::DataCall& call) {
  std::uint64_t bytes = 0;
  for (const v1::DataArrays& arrays : call.arrays()) {
    const std::uint64_t offsets =
        arrays.offsets() > 0 ? arrays.offsets() : UnitOffsets(arrays) * sizeof(std::uint32_t);
    for (const std::uint64_t array : {arrays.keys(), arrays.gradients(), arrays.weights(), offsets}) {
      bytes += PaddedBytes(array);
    }
  }
  return bytes;
}

Result<std::vector<CheckedLookup>> CheckLookupsOnDevice(const v1::DataCall& call, DeviceBody& body,
                                                        const FindTable& find_table) {
  CopiedCall copied(call, body, find_table);
  std::vector<CheckedLookup> all;
  for (int i = 0; i < call.lookups_size(); ++i) {
    auto checked = CheckLookup(call.lookups(i), std::move(copied.at(i).arrays), find_table);
    if (!checked.ok()) return Placed(call, kLookups, i, checked.status());
    all.push_back(std::move(*checked));
  }
  return all;
}

Result<std::vector<PushRequest>> CheckPushesOnDevice(const v1::DataCall& call, DeviceBody& body,
                                                     const FindTable& find_table) {
  CopiedCall copied(call, body, find_table);
  std::vector<PushRequest> all;
  for (int i = 0; i < call.pushes_size(); ++i) {
    Message& message = copied.at(i);
    auto checked =
        CheckPush(call.pushes(i), std::move(message.arrays), std::move(message.gradients), find_table);
    if (!checked.ok()) return Placed(call, kPushes, i, checked.status());
    all.push_back(std::move(*checked));
  }
  return all;
}

}  // namespace slotwise
