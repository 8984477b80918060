#include "client/cpp/messages.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "slotwise/v1/embedding.pb.h"
#include "slotwise/v1/rows.pb.h"
#include "wire/data_type_proto.h"
#include "wire/table_options_proto.h"
#include "wire/wire_reader.h"
#include "wire/wire_writer.h"

namespace slotwise::client {
namespace {

// Writes a message into one piece of memory: its small fields, then its arrays, one after the other.
class MessageWriter {
 public:
  // A `bytes` field of `size` bytes that `write` fills.
  struct Array {
    int field = 0;
    std::size_t size = 0;
    std::function<void(char*)> write;
  };

  explicit MessageWriter(const google::protobuf::MessageLite& small_fields)
      : header_(small_fields.SerializeAsString()) {}

  void Add(int field, std::size_t size, std::function<void(char*)> write) {
    if (size > 0) arrays_.push_back({field, size, std::move(write)});
  }

  template <class T>
  void AddCopy(int field, std::span<const T> values) {
    Add(field, values.size_bytes(),
        [values](char* to) { std::memcpy(to, values.data(), values.size_bytes()); });
  }

  grpc::ByteBuffer Write(MessageMemory& memory) const {
    std::vector<std::string> headers(arrays_.size());
    std::size_t size = header_.size();
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      AppendArrayHeader(arrays_[i].field, arrays_[i].size, headers[i]);
      size += headers[i].size() + arrays_[i].size;
    }
    const auto [slice, bytes] = memory.Take(size);
    char* to = reinterpret_cast<char*>(bytes);
    to = std::ranges::copy(header_, to).out;
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      to = std::ranges::copy(headers[i], to).out;
      arrays_[i].write(to);
      to += arrays_[i].size;
    }
    return {&slice, 1};
  }

 private:
  const std::string header_;
  std::vector<Array> arrays_;
};

// LookupRequest and PushRequest give their arrays the same field numbers.
constexpr int kKeys = v1::LookupRequest::kKeysFieldNumber;
constexpr int kOffsets = v1::LookupRequest::kOffsetsFieldNumber;
constexpr int kWeights = v1::LookupRequest::kWeightsFieldNumber;
static_assert(kKeys == v1::PushRequest::kKeysFieldNumber &&
              kOffsets == v1::PushRequest::kOffsetsFieldNumber &&
              kWeights == v1::PushRequest::kWeightsFieldNumber);

// Adds the bags of `samples`, with offsets that begin at 0 again.
void AddBags(const CheckedBatch& batch, SampleRange samples, MessageWriter& message) {
  const std::uint64_t first = samples.first * batch.slots;
  const std::uint64_t last = samples.last * batch.slots;
  const auto& [keys, offsets, weights] = batch.view;
  const std::uint64_t first_key = offsets.empty() ? first : offsets[first];
  const std::uint64_t key_count = (offsets.empty() ? last : offsets[last]) - first_key;
  message.AddCopy(kKeys, keys.subspan(first_key, key_count));
  if (!weights.empty()) {
    message.AddCopy(kWeights, weights.subspan(first_key, key_count));
  }
  if (offsets.empty()) return;
  const auto part = offsets.subspan(first, last - first + 1);
  message.Add(kOffsets, part.size_bytes(), [part, base = offsets[first]](char* to) {
    for (const std::uint32_t offset : part) {
      const std::uint32_t from_here = offset - base;
      std::memcpy(to, &from_here, sizeof(from_here));
      to += sizeof(from_here);
    }
  });
}

Status Internal(const Status& status) { return {StatusCode::kInternal, status.message()}; }

Status CheckCombiner(std::span<const std::uint32_t> offsets, Combiner combiner) {
  if (combiner != Combiner::kNone) return {};
  for (std::size_t bag = 0; bag < offsets.size(); ++bag) {
    if (offsets[bag] == bag) continue;
    return InvalidArgument("offsets[" + std::to_string(bag) + "] is " + std::to_string(offsets[bag]) +
                           ": must be " + std::to_string(bag) +
                           ", because in a table without a combiner every bag has one key");
  }
  return {};
}

// Reads a `bytes` field into a vector, and remembers how many bytes there were.
template <class T>
ArrayField IntoVector(int field, std::vector<T>& to, std::size_t& bytes) {
  return {field, [&to, &bytes](std::size_t size) -> void* {
            bytes = size;
            to.resize((size + sizeof(T) - 1) / sizeof(T));
            return to.data();
          }};
}

}  // namespace

Result<CheckedBatch> CheckBatchShape(const BatchView& batch, const TableOptions& table) {
  const std::uint32_t slots = table.slots;
  const std::uint64_t bags = batch.offsets.empty() ? batch.keys.size() : batch.offsets.size() - 1;
  const std::uint64_t samples = bags / slots;
  if (samples > std::numeric_limits<std::uint32_t>::max()) {
    return InvalidArgument("the batch has " + std::to_string(samples) + " samples, more than 32 bits count");
  }
  if (bags % slots != 0) {
    return InvalidArgument((batch.offsets.empty()
                                ? "keys has " + std::to_string(bags) + " keys without offsets"
                                : "offsets has " + std::to_string(bags + 1) + " elements") +
                           ", which is no whole number of samples of " + std::to_string(slots) + " slots");
  }
  if (!batch.weights.empty() && batch.weights.size() != batch.keys.size()) {
    return InvalidArgument("weights has " + std::to_string(batch.weights.size()) +
                           " elements: must have none, or " + std::to_string(batch.keys.size()) +
                           ", one for each key");
  }
  return CheckedBatch{.view = batch, .samples = samples, .slots = slots, .width = slots * table.dim};
}

Result<CheckedBatch> CheckBatch(const BatchView& batch, const TableOptions& table) {
  auto checked = CheckBatchShape(batch, table);
  if (!checked.ok()) return checked;
  const auto strange = std::ranges::find_if_not(batch.weights, [](float w) { return std::isfinite(w); });
  if (strange != batch.weights.end()) {
    return InvalidArgument("weights[" + std::to_string(strange - batch.weights.begin()) + "] is " +
                           std::to_string(*strange) + ": must be finite");
  }
  if (!batch.offsets.empty()) {
    if (Status status = Validate(batch, static_cast<std::uint32_t>(checked->samples), checked->slots);
        !status.ok())
      return status;
    if (Status status = CheckCombiner(batch.offsets, table.combiner); !status.ok()) return status;
  }
  return checked;
}

// Widens halves, which come in pieces of any size, into `out`. REQUIRES: the pieces are together as many as
// `out` holds.
class PiecewiseWidening {
 public:
  PiecewiseWidening(DataType type, std::span<float> out) : type_(type), out_(out) {}

  void Add(std::span<const std::byte> piece) {
    if (split_ && !piece.empty()) {
      const std::array half{first_byte_, piece.front()};
      piece = piece.subspan(1);
      split_ = false;
      Write(half.data(), 1);
    }
    Write(piece.data(), piece.size() / kHalf);
    if (piece.size() % kHalf == 0) return;
    split_ = true;
    first_byte_ = piece.back();
  }

 private:
  static constexpr std::size_t kHalf = 2;

  void Write(const std::byte* halves, std::size_t count) {
    Widen(halves, type_, out_.first(count));
    out_ = out_.subspan(count);
  }

  const DataType type_;
  std::span<float> out_;  // what is still to be written
  bool split_ = false;    // the last piece ended in the middle of a number, with this byte
  std::byte first_byte_{};
};

namespace {

// Says in a request what this client knows to be in the table.
template <class Message>
void SayAcknowledged(const TableState& acknowledged, Message& request) {
  if (acknowledged.incarnation == 0 || acknowledged.step == 0) return;
  request.mutable_acknowledged()->set_incarnation(acknowledged.incarnation);
  request.mutable_acknowledged()->set_table_step(acknowledged.step);
}

}  // namespace

v1::LookupRequest LookupFields(std::string_view table, LookupMode mode, DataType type, SampleRange samples,
                               const TableState& acknowledged) {
  v1::LookupRequest fields;
  fields.set_table(std::string(table));
  fields.set_mode(mode == LookupMode::kTrain ? v1::LOOKUP_MODE_TRAIN : v1::LOOKUP_MODE_EVAL);
  fields.set_samples(static_cast<std::uint32_t>(samples.size()));
  fields.set_data_type(ToProto(type));
  SayAcknowledged(acknowledged, fields);
  return fields;
}

v1::PushRequest PushFields(std::string_view table, const StepId& step, DataType type, SampleRange samples,
                           const TableState& looked_up, const TableState& acknowledged,
                           std::optional<float> learning_rate) {
  v1::PushRequest fields;
  fields.set_table(std::string(table));
  fields.mutable_step()->set_session(step.session);
  fields.mutable_step()->set_number(step.number);
  fields.mutable_step()->set_part(step.part);
  fields.mutable_step()->set_parts(step.parts);
  fields.mutable_step()->set_epoch(step.epoch);
  if (step.tables > 1) {
    fields.mutable_step()->set_place(step.place);
    fields.mutable_step()->set_tables(step.tables);
  }
  fields.set_samples(static_cast<std::uint32_t>(samples.size()));
  fields.set_data_type(ToProto(type));
  if (looked_up.lineage != 0) {
    fields.mutable_looked_up()->set_lineage(looked_up.lineage);
    fields.mutable_looked_up()->set_table_step(looked_up.step);
  }
  SayAcknowledged(acknowledged, fields);
  if (learning_rate) fields.set_learning_rate(*learning_rate);
  return fields;
}

grpc::ByteBuffer LookupMessage(MessageMemory& memory, std::string_view table, LookupMode mode, DataType type,
                               const CheckedBatch& batch, SampleRange samples,
                               const TableState& acknowledged) {
  MessageWriter message(LookupFields(table, mode, type, samples, acknowledged));
  AddBags(batch, samples, message);
  return message.Write(memory);
}

grpc::ByteBuffer PushMessage(MessageMemory& memory, std::string_view table, const StepId& step,
                             const CheckedBatch& batch, SampleRange samples, std::span<const float> gradients,
                             DataType type, const TableState& looked_up, const TableState& acknowledged,
                             std::optional<float> learning_rate) {
  MessageWriter message(PushFields(table, step, type, samples, looked_up, acknowledged, learning_rate));
  AddBags(batch, samples, message);
  const auto part = gradients.subspan(samples.first * batch.width, samples.size() * batch.width);
  if (type == DataType::kFloat32) {
    message.AddCopy(v1::PushRequest::kGradientsFieldNumber, part);
  } else {
    message.Add(v1::PushRequest::kGradientsFieldNumber, part.size() * BytesOf(type),
                [part, type](char* to) { Narrow(part, type, reinterpret_cast<std::byte*>(to)); });
  }
  return message.Write(memory);
}

ServerTopology TopologyOf(const v1::GetTopologyReply& reply) {
  ServerTopology topology{.version = reply.version(),
                          .ranks = {},
                          .max_message_bytes = reply.max_message_bytes(),
                          .max_round_bytes = reply.max_round_bytes(),
                          .incarnation = reply.incarnation(),
                          .epoch = reply.epoch(),
                          .data_version = reply.data_version(),
                          .gives_reasons = reply.gives_reasons()};
  for (const auto& rank : reply.ranks()) {
    ServerRank& made = topology.ranks.emplace_back();
    made.address = rank.address();
    made.device = rank.device();
    made.local = rank.local();
    made.gpu = rank.gpu();
    if (rank.has_local_user()) made.local_user = rank.local_user();
  }
  return topology;
}

Result<TableOptions> OptionsIn(const v1::TableOptions& said) {
  auto options = FromProto(said);
  if (options.ok()) return options;
  return Status(StatusCode::kInternal, "the reply is not of this version: " + options.status().message());
}

Result<TableOptions> DescribedOptions(const v1::DescribeTableReply& reply, std::string_view table) {
  auto options = OptionsIn(reply.options());
  if (!options.ok()) return options;
  if (options->name.view() != table) {
    return Status(StatusCode::kInternal, "the reply describes the table \"" + options->name.str() +
                                             "\", not \"" + std::string(table) + "\"");
  }
  return options;
}

v1::DescribeTableRequest DescribeRequest(std::string_view table, const TableState& acknowledged) {
  v1::DescribeTableRequest request;
  request.set_table(std::string(table));
  SayAcknowledged(acknowledged, request);
  return request;
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

Status CheckReplyShape(const v1::LookupReply& fields, std::uint64_t received, std::uint64_t samples,
                       std::uint32_t width, DataType type, std::size_t numbers) {
  const std::uint64_t expected = numbers * BytesOf(type);
  if (received != expected || (expected > 0 && fields.width() != width)) {
    return FailedPrecondition("the reply has " + std::to_string(received) +
                              " bytes of values in samples of " + std::to_string(fields.width()) + ", not " +
                              std::to_string(samples) + " samples of " + std::to_string(width) +
                              " numbers of " + std::string(ToString(type)) +
                              ": the table was made anew with other options; try again")
        .Because(Reason::kTableChanged);
  }
  const bool plain = fields.data_type() == v1::DATA_TYPE_UNSPECIFIED && type == DataType::kFloat32;
  if (expected > 0 && !plain && fields.data_type() != ToProto(type)) {
    return Status(StatusCode::kInternal, "the reply's data_type is " + std::to_string(fields.data_type()) +
                                             ", which was not asked for");
  }
  return {};
}

Result<TableState> ReadLookupReply(const grpc::ByteBuffer& reply, std::uint64_t samples, std::uint32_t width,
                                   DataType type, std::span<float> out) {
  const std::size_t expected = out.size() * BytesOf(type);
  std::size_t received = 0;
  std::optional<PiecewiseWidening> widening;
  ArrayField values{v1::LookupReply::kValuesFieldNumber, [&](std::size_t size) -> void* {
                      received = size;
                      widening.emplace(type, out);  // of the last such field alone
                      return size == expected ? out.data() : nullptr;
                    }};
  if (type != DataType::kFloat32) {
    values.take_piece = [&](std::span<const std::byte> piece) { widening->Add(piece); };
  }
  const std::array arrays{std::move(values)};
  v1::LookupReply fields;
  if (Status status = ReadMessage(reply, arrays, fields); !status.ok()) return Internal(status);
  if (Status status = CheckReplyShape(fields, received, samples, width, type, out.size()); !status.ok()) {
    return status;
  }
  return TableState{fields.lineage(), fields.table_step(), fields.incarnation(), fields.lost_from()};
}

Status ReadExportReply(const grpc::ByteBuffer& reply, ExportedRows& rows) {
  rows.keys.clear();
  rows.values.clear();
  rows.state.clear();
  std::array<std::size_t, 3> bytes{};
  const std::array arrays{IntoVector(v1::ExportReply::kKeysFieldNumber, rows.keys, bytes[0]),
                          IntoVector(v1::ExportReply::kValuesFieldNumber, rows.values, bytes[1]),
                          IntoVector(v1::ExportReply::kStateFieldNumber, rows.state, bytes[2])};
  v1::ExportReply fields;
  if (Status status = ReadMessage(reply, arrays, fields); !status.ok()) return Internal(status);
  rows.lineage = fields.lineage();
  const std::uint64_t count = rows.keys.size();
  if (bytes[0] == count * sizeof(Key) && bytes[1] == count * fields.dim() * sizeof(float) &&
      bytes[2] == count * fields.state_size() * sizeof(float)) {
    return {};
  }
  return {StatusCode::kInternal, "the reply is not a valid ExportReply: " + std::to_string(bytes[0]) +
                                     " bytes of keys, " + std::to_string(bytes[1]) + " of values and " +
                                     std::to_string(bytes[2]) + " of state"};
}

Status Deserialize(const grpc::ByteBuffer& reply, google::protobuf::MessageLite& message) {
  Status status = ReadMessage(reply, {}, message);
  return status.ok() ? status : Internal(status);
}

}  // namespace slotwise::client
