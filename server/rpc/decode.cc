#include "server/rpc/decode.h"

#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "server/rpc/finite.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/wire_reader.h"
#include "slotwise/batch.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise {
namespace {

// The arrays that Lookup and Push share.
struct WireBatch {
  WireArray<Key> keys;
  WireArray<std::uint32_t> offsets;
};

Status NotWhole(std::string_view field, std::size_t bytes, std::size_t element) {
  return InvalidArgument(std::string(field) + " has " + std::to_string(bytes) + " bytes, not a multiple of " +
                         std::to_string(element));
}

Result<TableInfo> TableNamed(const std::string& name, const FindTable& find_table) {
  if (auto table = find_table(name)) return *table;
  return NotFound("there is no table " + Quoted(name));
}

// One key a bag, for requests that leave the offsets out.
Result<HostArray<std::uint32_t>> UnitOffsets(std::size_t keys, std::uint32_t samples, std::uint32_t slots) {
  const std::uint64_t bags = std::uint64_t{samples} * slots;
  if (keys != bags) {
    return InvalidArgument("keys has " + std::to_string(keys) + " keys for " + std::to_string(bags) +
                           " bags (samples " + std::to_string(samples) + " x slots " + std::to_string(slots) +
                           "); without offsets, every bag has one key");
  }
  HostArray<std::uint32_t> offsets(keys + 1);
  std::iota(offsets.data(), offsets.data() + offsets.size(), 0u);
  return offsets;
}

Result<BatchPart> CheckBatch(WireBatch wire, std::uint32_t samples, std::uint32_t slots) {
  if (!wire.keys.whole()) return NotWhole("keys", wire.keys.bytes, sizeof(Key));
  if (!wire.offsets.whole()) return NotWhole("offsets", wire.offsets.bytes, sizeof(std::uint32_t));

  BatchPart part{
      .samples = samples, .keys = std::move(wire.keys.values), .offsets = std::move(wire.offsets.values)};
  if (part.offsets.size() == 0) {  // proto3 does not tell an absent array from an empty one
    auto offsets = UnitOffsets(part.keys.size(), samples, slots);
    if (!offsets.ok()) return offsets.status();
    part.offsets = std::move(*offsets);
    return part;
  }
  if (Status status = Validate(part.view(), samples, slots); !status.ok()) return status;
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

Status CheckDataType(v1::DataType type) {
  if (type == v1::DATA_TYPE_UNSPECIFIED || type == v1::DATA_TYPE_FLOAT32) return {};
  return InvalidArgument("data_type is " + std::to_string(type) + ", which is no DataType");
}

// The engine refuses what is larger than a round; this is protobuf's own limit, for rounds that are larger still.
Status CheckReplySize(std::uint32_t samples, std::uint32_t width) {
  constexpr std::uint64_t kMaxReply = (std::uint64_t{1} << 31) - 4096;
  const std::uint64_t bytes = std::uint64_t{samples} * width * sizeof(float);
  if (bytes <= kMaxReply) return {};
  return ResourceExhausted("samples is " + std::to_string(samples) + ": the reply would have " +
                           std::to_string(bytes) + " bytes, and a message holds at most " +
                           std::to_string(kMaxReply));
}

Result<StepId> StepOf(const v1::PushRequest& message) {
  if (!message.has_step())
    return InvalidArgument("step is missing: a push names the step that it is part of");
  const v1::StepId& wire = message.step();
  const StepId step{.session = wire.session(),
                    .number = wire.number(),
                    .part = wire.part(),
                    .parts = wire.parts() == 0 ? 1 : wire.parts()};
  if (Status status = Validate(step); !status.ok()) return status;
  return step;
}

Status CheckGradients(const WireArray<float>& gradients, std::uint32_t samples, const TableOptions& table) {
  // At most 2^32 · 2^12 · 2^12 · 2^2: fits.
  const std::uint64_t expected = std::uint64_t{samples} * table.slots * table.dim * sizeof(float);
  if (gradients.bytes != expected) {
    return InvalidArgument("gradients has " + std::to_string(gradients.bytes) + " bytes, but samples " +
                           std::to_string(samples) + " x slots " + std::to_string(table.slots) + " x dim " +
                           std::to_string(table.dim) + " float32 values are " + std::to_string(expected));
  }
  if (const auto place = FirstNonFinite(gradients.values.span())) {
    const std::uint64_t bag = *place / table.dim;
    return InvalidArgument("gradients[" + std::to_string(*place) + "] is " +
                           std::to_string(gradients.values.data()[*place]) + " (sample " +
                           std::to_string(bag / table.slots) + ", slot " + std::to_string(bag % table.slots) +
                           ", element " + std::to_string(*place % table.dim) + "); gradients must be finite");
  }
  return {};
}

}  // namespace

Result<DecodedLookup> DecodeLookup(const grpc::ByteBuffer& bytes, const FindTable& find_table) {
  v1::LookupRequest message;
  WireBatch wire;
  const std::array arrays{Into(v1::LookupRequest::kKeysFieldNumber, wire.keys),
                          Into(v1::LookupRequest::kOffsetsFieldNumber, wire.offsets)};
  if (Status status = ReadMessage(bytes, arrays, message); !status.ok()) return status;

  auto table = TableNamed(message.table(), find_table);
  if (!table.ok()) return table.status();
  auto mode = ModeOf(message.mode());
  if (!mode.ok()) return mode.status();
  auto batch = CheckBatch(std::move(wire), message.samples(), table->options.slots);
  if (!batch.ok()) return batch.status();
  const std::uint32_t width = table->options.slots * table->options.dim;
  if (Status status = CheckReplySize(message.samples(), width); !status.ok()) return status;

  DecodedLookup decoded;
  decoded.request.table = table->id;
  decoded.request.mode = *mode;
  decoded.request.batch = std::move(*batch);
  decoded.width = width;
  return decoded;
}

Result<PushRequest> DecodePush(const grpc::ByteBuffer& bytes, const FindTable& find_table) {
  v1::PushRequest message;
  WireBatch wire;
  WireArray<float> gradients;
  const std::array arrays{Into(v1::PushRequest::kKeysFieldNumber, wire.keys),
                          Into(v1::PushRequest::kOffsetsFieldNumber, wire.offsets),
                          Into(v1::PushRequest::kGradientsFieldNumber, gradients)};
  if (Status status = ReadMessage(bytes, arrays, message); !status.ok()) return status;

  auto table = TableNamed(message.table(), find_table);
  if (!table.ok()) return table.status();
  auto step = StepOf(message);
  if (!step.ok()) return step.status();
  if (Status status = CheckDataType(message.data_type()); !status.ok()) return status;
  auto batch = CheckBatch(std::move(wire), message.samples(), table->options.slots);
  if (!batch.ok()) return batch.status();
  if (Status status = CheckGradients(gradients, message.samples(), table->options); !status.ok())
    return status;

  PushRequest request;
  request.table = table->id;
  request.step = *step;
  request.batch = std::move(*batch);
  request.gradients = std::move(gradients.values);
  return request;
}

}  // namespace slotwise
