#include "server/intake/check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/intake/decode_fields.h"
#include "server/intake/finite.h"
#include "server/intake/sampled_squares.h"
#include "slotwise/batch.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/wire_reader.h"

namespace slotwise {
namespace {

// Checks the number of keys of a request without offsets.
Status CheckOneKeyABag(std::size_t keys, std::uint32_t samples, std::uint32_t slots) {
  const std::uint64_t bags = std::uint64_t{samples} * slots;
  if (keys == bags) return {};
  return InvalidArgument("keys has " + std::to_string(keys) + " keys for " + std::to_string(bags) +
                         " bags (samples " + std::to_string(samples) + " x slots " + std::to_string(slots) +
                         "); without offsets, every bag has one key");
}

// Checks the offsets for a table without a combiner. REQUIRES: valid offsets.
Status CheckUnitOffsets(std::span<const std::uint32_t> offsets) {
  for (std::uint32_t bag = 0; bag < offsets.size(); ++bag) {
    if (offsets[bag] == bag) continue;
    return InvalidArgument("offsets[" + std::to_string(bag) + "] is " + std::to_string(offsets[bag]) +
                           ": in a table without a combiner every bag has one key, so it must be " +
                           std::to_string(bag));
  }
  return {};
}

// Checks a batch's offsets and sizes; ignores keys and weights.
Status CheckShape(const BatchView& batch, std::uint32_t samples, const TableOptions& table) {
  if (Status status = Validate(batch, samples, table.slots); !status.ok()) return status;
  return table.combiner == Combiner::kNone ? CheckUnitOffsets(batch.offsets) : Status();
}

// Does the same for a batch in device memory. Offsets are copied to the host only for an error.
Status CheckShapeThere(const BatchPart& part, const FoundArrays& found, const TableOptions& table) {
  const std::uint64_t bags = std::uint64_t{part.samples} * table.slots;
  const bool weights_fit = part.weights.size() == 0 || part.weights.size() == part.keys.size();
  if (found.offsets.wrong == ArrivedArray::kNone && part.offsets.size() == bags + 1 && weights_fit) return {};
  std::vector<std::uint32_t> offsets(part.offsets.size());
  found.by->Download(offsets.data(), part.offsets.data(), part.offsets.bytes());
  if (found.wide_offsets) {
    const auto too_large = std::find(offsets.begin(), offsets.end(), ~std::uint32_t{0});
    if (too_large != offsets.end()) {
      return InvalidArgument("offsets[" + std::to_string(too_large - offsets.begin()) +
                             "] is negative, or above 4294967294: must be 0 to the number of keys, " +
                             std::to_string(part.keys.size()));
    }
  }
  BatchView here = part.view();
  here.offsets = offsets;
  Status status = CheckShape(here, part.samples, table);
  if (!status.ok()) return status;
  return {StatusCode::kInternal, "the device finds fault with offsets that have none"};
}

Status NonFiniteWeight(std::uint64_t place, float value) {
  return InvalidArgument("weights[" + std::to_string(place) + "] is " + std::to_string(value) +
                         ": must be finite");
}

Result<BatchPart> CheckBatch(BatchArrays wire, std::uint32_t samples, const TableOptions& table) {
  if (Status status = CheckWhole("keys", wire.keys); !status.ok()) return status;
  const FoundArrays* const found = wire.found;
  const std::size_t offset_bytes =
      found != nullptr && found->wide_offsets ? sizeof(std::uint64_t) : sizeof(std::uint32_t);
  if (Status status = CheckWhole("offsets", wire.offsets.bytes, offset_bytes); !status.ok()) return status;
  if (Status status = CheckWhole("weights", wire.weights); !status.ok()) return status;

  const bool left_out = wire.offsets.bytes == 0;  // proto3 cannot tell an absent array from an empty one
  BatchPart part{.samples = samples,
                 .keys = std::move(wire.keys.values),
                 .offsets = std::move(wire.offsets.values),
                 .weights = std::move(wire.weights.values),
                 .memory = found != nullptr ? MemoryKind::kDevice : MemoryKind::kHost};
  if (left_out) {
    if (Status status = CheckOneKeyABag(part.keys.size(), samples, table.slots); !status.ok()) return status;
    if (found == nullptr) part.offsets = UnitOffsets(part.keys.size());
  }
  if (found != nullptr) {
    if (Status status = CheckShapeThere(part, *found, table); !status.ok()) return status;
    if (const std::uint64_t place = found->weights.wrong; place != ArrivedArray::kNone) {
      float value = 0;
      found->by->Download(&value, part.weights.data() + place, sizeof(value));
      return NonFiniteWeight(place, value);
    }
    return part;
  }
  if (Status status = CheckShape(part.view(), samples, table); !status.ok()) return status;
  if (Status status = CheckFinite("weights", part.weights.span()); !status.ok()) return status;
  return part;
}

Result<LookupMode> ModeOf(v1::LookupMode mode) {
  switch (mode) {
    case v1::LOOKUP_MODE_UNSPECIFIED:
    case v1::LOOKUP_MODE_TRAIN:
      return LookupMode::kTrain;
    case v1::LOOKUP_MODE_EVAL:
      return LookupMode::kEval;
    default:
      return InvalidArgument("mode is " + std::to_string(mode) + ", which is no LookupMode");
  }
}

// Checks protobuf's own limit, which a round may exceed. The engine refuses requests larger than a round.
Status CheckReplySize(std::uint32_t samples, std::uint32_t width, DataType type) {
  constexpr std::uint64_t kMaxReply = (std::uint64_t{1} << 31) - 4096;
  const std::uint64_t bytes = std::uint64_t{samples} * width * BytesOf(type);
  if (bytes <= kMaxReply) return {};
  return ResourceExhausted("samples is " + std::to_string(samples) + ": the reply would have " +
                           std::to_string(bytes) + " bytes, and a message holds at most " +
                           std::to_string(kMaxReply))
      .Because(Reason::kTooLarge);
}

Result<StepId> StepOf(const v1::PushRequest& message) {
  if (!message.has_step())
    return InvalidArgument("step is missing: a push names the step that it is part of");
  const v1::StepId& wire = message.step();
  const StepId step{.session = wire.session(),
                    .number = wire.number(),
                    .part = wire.part(),
                    .parts = wire.parts() == 0 ? 1 : wire.parts(),
                    .epoch = wire.epoch(),
                    .place = wire.place(),
                    .tables = wire.tables() == 0 ? 1 : wire.tables()};
  if (Status status = Validate(step); !status.ok()) return status;
  return step;
}

// Checks the gradients, hashes them unless the device has done so, and samples those in host memory.
Status CheckGradients(const WireNumbers& wire, const FoundArrays* found, DataType type, std::uint32_t samples,
                      const TableInfo& of, ArrayHash& hash, SampledSquares& squares) {
  const TableOptions& table = of.options;
  // The product is at most 2^32 · 2^12 · 2^12 · 2^2, which fits.
  const std::uint64_t count = std::uint64_t{samples} * table.slots * table.dim;
  if (wire.bytes != count * BytesOf(type)) {
    return InvalidArgument("gradients has " + std::to_string(wire.bytes) + " bytes, but samples " +
                           std::to_string(samples) + " x slots " + std::to_string(table.slots) + " x dim " +
                           std::to_string(table.dim) + " " + std::string(ToString(type)) + " values are " +
                           std::to_string(count * BytesOf(type)));
  }
  std::optional<std::size_t> place;
  if (found == nullptr) {
    place = FirstNonFinite(wire.words.data(), type, count, &hash, &squares);
  } else if (found->gradients.wrong != ArrivedArray::kNone) {
    place = found->gradients.wrong;
  }
  if (!place) return {};
  if (of.counters != nullptr) of.counters->CountNonFinite();
  const auto* const at = reinterpret_cast<const std::byte*>(wire.words.data()) + *place * BytesOf(type);
  std::array<std::byte, sizeof(float)> number{};
  if (found == nullptr) {
    std::copy_n(at, BytesOf(type), number.begin());
  } else {
    found->by->Download(number.data(), at, BytesOf(type));
  }
  float value = 0;
  Widen(number.data(), type, {&value, 1});
  const std::uint64_t bag = *place / table.dim;
  return InvalidArgument("gradients[" + std::to_string(*place) + "] is " + std::to_string(value) +
                         " (sample " + std::to_string(bag / table.slots) + ", slot " +
                         std::to_string(bag % table.slots) + ", element " +
                         std::to_string(*place % table.dim) + "); gradients must be finite");
}

template <class T>
std::uint64_t HashOf(std::span<const T> array) {
  static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
  ArrayHash hash;
  hash.AddWords(array.data(), array.size_bytes() / sizeof(std::uint32_t));
  return hash.value();
}

// Samples keys in host memory only.
void SampleKeys(const TableInfo& table, const BatchPart& part) {
  if (table.counters != nullptr && part.memory == MemoryKind::kHost)
    table.counters->SampleKeys(part.keys.span());
}

std::uint64_t HashOf(const ArrivedArray& found) { return ArrayHash(found).value(); }

}  // namespace

Result<DataType> CheckDataType(v1::DataType type, std::string_view field) {
  switch (type) {
    case v1::DATA_TYPE_UNSPECIFIED:
    case v1::DATA_TYPE_FLOAT32:
      return DataType::kFloat32;
    case v1::DATA_TYPE_FLOAT16:
      return DataType::kFloat16;
    case v1::DATA_TYPE_BFLOAT16:
      return DataType::kBFloat16;
    default:
      return InvalidArgument(std::string(field) + " is " + std::to_string(type) + ", which is no DataType");
  }
}

Acknowledged AcknowledgedIn(const v1::AcknowledgedState& message) {
  return {.instance = message.incarnation(), .step = message.table_step()};
}

Result<CheckedLookup> CheckLookup(const v1::LookupRequest& message, BatchArrays arrays,
                                  const FindTable& find_table) {
  auto mode = ModeOf(message.mode());
  const bool makes_rows = !mode.ok() || *mode == LookupMode::kTrain;
  auto table = find_table(message.table(), makes_rows ? Rights::kRead | Rights::kPush : Rights::kRead);
  if (!table.ok()) return table.status();
  if (!mode.ok()) return mode.status();
  auto type = CheckDataType(message.data_type(), "data_type");
  if (!type.ok()) return type.status();
  auto batch = CheckBatch(std::move(arrays), message.samples(), table->options);
  if (!batch.ok()) return batch.status();
  const std::uint32_t width = table->options.slots * table->options.dim;
  if (Status status = CheckReplySize(message.samples(), width, *type); !status.ok()) return status;

  SampleKeys(*table, *batch);
  CheckedLookup checked;
  checked.request.table = table->id;
  checked.request.mode = *mode;
  checked.request.batch = std::move(*batch);
  checked.request.type = *type;
  checked.acknowledged = AcknowledgedIn(message.acknowledged());
  checked.width = width;
  return checked;
}

Result<PushRequest> CheckPush(const v1::PushRequest& message, BatchArrays arrays, WireNumbers gradients,
                              const FindTable& find_table) {
  auto table = find_table(message.table(), Rights::kPush);
  if (!table.ok()) return table.status();
  auto step = StepOf(message);
  if (!step.ok()) return step.status();
  auto type = CheckDataType(message.data_type(), "data_type");
  if (!type.ok()) return type.status();
  const FoundArrays* const found = arrays.found;
  auto batch = CheckBatch(std::move(arrays), message.samples(), table->options);
  if (!batch.ok()) return batch.status();
  ArrayHash hash;
  SampledSquares squares(step->number + step->part);
  if (Status status = CheckGradients(gradients, found, *type, message.samples(), *table, hash, squares);
      !status.ok()) {
    return status;
  }

  if (message.has_learning_rate()) {
    if (Status status = ValidateStepRate(message.learning_rate(), table->options); !status.ok())
      return status;
  }

  SampleKeys(*table, *batch);
  PushRequest request;
  request.table = table->id;
  request.step = *step;
  if (message.has_learning_rate()) request.learning_rate = message.learning_rate();
  const BatchView view = batch->view();
  const auto arrays_hash = found == nullptr ? std::array{HashOf(view.keys), HashOf(view.offsets),
                                                         HashOf(view.weights), hash.value()}
                                            : std::array{HashOf(found->keys), HashOf(found->offsets),
                                                         HashOf(found->weights), HashOf(found->gradients)};
  request.body = PayloadHash(message.samples(), arrays_hash, request.learning_rate);
  request.looked_up = {.generation = message.looked_up().lineage(), .step = message.looked_up().table_step()};
  request.acknowledged = AcknowledgedIn(message.acknowledged());
  request.gradients = squares.sum();
  request.batch = std::move(*batch);
  request.batch.values = std::move(gradients.words);
  request.batch.value_type = *type;
  return request;
}

Result<CheckedLookup> DecodeLookup(const MessageBytes& bytes, const FindTable& find_table,
                                   ArrayPool* arrays) {
  v1::LookupRequest message;
  BatchArrays batch(arrays);
  const std::array fields{ReadInto(v1::LookupRequest::kKeysFieldNumber, batch.keys),
                          ReadInto(v1::LookupRequest::kOffsetsFieldNumber, batch.offsets),
                          ReadInto(v1::LookupRequest::kWeightsFieldNumber, batch.weights)};
  if (Status status = ReadMessage(bytes, fields, message); !status.ok()) return status;
  return CheckLookup(message, std::move(batch), find_table);
}

Result<PushRequest> DecodePush(const MessageBytes& bytes, const FindTable& find_table, ArrayPool* arrays) {
  v1::PushRequest message;
  BatchArrays batch(arrays);
  WireNumbers gradients{.pool = arrays};
  const std::array fields{ReadInto(v1::PushRequest::kKeysFieldNumber, batch.keys),
                          ReadInto(v1::PushRequest::kOffsetsFieldNumber, batch.offsets),
                          ReadInto(v1::PushRequest::kWeightsFieldNumber, batch.weights),
                          ReadInto(v1::PushRequest::kGradientsFieldNumber, gradients)};
  if (Status status = ReadMessage(bytes, fields, message); !status.ok()) return status;
  return CheckPush(message, std::move(batch), std::move(gradients), find_table);
}

Status WithPlace(std::string_view field, std::size_t index, const Status& why) {
  return why.InWords(std::string(field) + "[" + std::to_string(index) + "]: " + why.message());
}

}  // namespace slotwise
