#include "client/cpp/batch_exchange.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/message_memory.h"
#include "client/cpp/messages.h"
#include "client/cpp/piecewise_widening.h"
#include "wire/data_type_proto.h"
#include "wire/frame_stream.h"
#include "wire/nested.h"
#include "wire/wire_reader.h"
#include "wire/wire_writer.h"

namespace slotwise::client {
namespace {

// A MessageWriter writes a message into one piece of memory: its small fields, then its arrays, one after the
// other.
class MessageWriter {
 public:
  // Adds a `bytes` field of `size` bytes, which `write` writes.
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
  const BatchView part = PartOf(batch, samples);
  message.AddCopy(kKeys, part.keys);
  message.AddCopy(kWeights, part.weights);
  message.Add(kOffsets, part.offsets.size_bytes(), [offsets = part.offsets](char* to) {
    for (const std::uint32_t offset : offsets) {
      const std::uint32_t from_here = offset - offsets.front();
      std::memcpy(to, &from_here, sizeof(from_here));
      to += sizeof(from_here);
    }
  });
}

// Adds an array to a body, and returns its bytes.
template <class T>
std::uint64_t Add(std::span<const T> array, DataExchange::Body& body) {
  AddArray(std::as_bytes(array), body);
  return array.size_bytes();
}

// LookupMany and PushMany, and their replies, have one field.
constexpr int kMany = v1::LookupManyRequest::kLookupsFieldNumber;
static_assert(kMany == v1::LookupManyReply::kRepliesFieldNumber &&
              kMany == v1::PushManyRequest::kPushesFieldNumber);

Status WrongCount(std::size_t messages, std::size_t pieces) {
  return {StatusCode::kInternal, "the reply has " + std::to_string(messages) +
                                     " messages, not one for each of the request's " +
                                     std::to_string(pieces)};
}

// Returns a part's request without its arrays.
v1::LookupRequest LookupFields(const TableBatch& batch, SampleRange samples, LookupMode mode, DataType type) {
  v1::LookupRequest fields;
  fields.set_table(batch.table);
  fields.set_mode(mode == LookupMode::kTrain ? v1::LOOKUP_MODE_TRAIN : v1::LOOKUP_MODE_EVAL);
  fields.set_samples(static_cast<std::uint32_t>(samples.size()));
  fields.set_data_type(ToProto(type));
  SayAcknowledged(batch.before, fields);
  return fields;
}

// Returns a push's request without its arrays.
v1::PushRequest PushFields(const TableBatch& batch, SampleRange samples, const StepId& step, DataType type) {
  v1::PushRequest fields;
  fields.set_table(batch.table);
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
  if (batch.looked_up.generation != 0) {
    fields.mutable_looked_up()->set_lineage(batch.looked_up.generation);
    fields.mutable_looked_up()->set_table_step(batch.looked_up.step);
  }
  SayAcknowledged(batch.before, fields);
  if (batch.learning_rate) fields.set_learning_rate(*batch.learning_rate);
  return fields;
}

// Checks the reply to `samples` samples of `width` numbers, which travelled as `type`: its `received` bytes
// of values must be `numbers` numbers. Errors as in ReadLookupReply.
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

// Returns the state of the table that a reply to a lookup names.
TableState StateIn(const v1::LookupReply& reply) {
  return {reply.lineage(), reply.table_step(), reply.incarnation(), reply.lost_from()};
}

}  // namespace

grpc::ByteBuffer LookupMessage(const TableBatch& batch, SampleRange samples, LookupMode mode, DataType type,
                               MessageMemory& memory) {
  MessageWriter message(LookupFields(batch, samples, mode, type));
  AddBags(batch.checked, samples, message);
  return message.Write(memory);
}

grpc::ByteBuffer PushMessage(const TableBatch& batch, SampleRange samples, const StepId& step, DataType type,
                             MessageMemory& memory) {
  MessageWriter message(PushFields(batch, samples, step, type));
  AddBags(batch.checked, samples, message);
  const std::uint32_t width = batch.checked.width;
  const auto part = batch.gradients.subspan(samples.first * width, samples.size() * width);
  if (type == DataType::kFloat32) {
    message.AddCopy(v1::PushRequest::kGradientsFieldNumber, part);
  } else {
    message.Add(v1::PushRequest::kGradientsFieldNumber, part.size() * BytesOf(type),
                [part, type](char* to) { Narrow(part, type, reinterpret_cast<std::byte*>(to)); });
  }
  return message.Write(memory);
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
  if (Status status = ReadMessage(reply, arrays, fields); !status.ok()) {
    return Status(StatusCode::kInternal, status.message());
  }
  if (Status status = CheckReplyShape(fields, received, samples, width, type, out.size()); !status.ok()) {
    return status;
  }
  return StateIn(fields);
}

Status BatchMessages::Meet(std::size_t request, const Piece& piece, const TableState& met) {
  const TableBatch& table = TableOf(piece);
  batches_->answers[request].instance = met.instance;
  return known_.Check(table.table, table.before, met);
}

grpc::ByteBuffer LookupMessages::Write(const Piece& piece) {
  return LookupMessage(TableOf(piece), piece.samples, mode_, type_, *memory_);
}

void LookupMessages::AddTo(v1::DataCall& call, const Piece& piece) {
  *call.add_lookups() = LookupFields(TableOf(piece), piece.samples, mode_, type_);
}

Status LookupMessages::Read(std::size_t request, const Piece& piece, const grpc::ByteBuffer& reply) {
  const TableBatch& table = TableOf(piece);
  const std::uint32_t width = table.checked.width;
  const auto out = table.out.subspan(piece.samples.first * width, piece.samples.size() * width);
  const auto met = ReadLookupReply(reply, piece.samples.size(), width, type_, out);
  return met.ok() ? Take(request, piece, *met) : met.status();
}

Status LookupMessages::Read(std::size_t request, const Piece& piece, const v1::DataReply& reply, int place) {
  return Take(request, piece, StateIn(reply.lookups(place)));
}

Status LookupMessages::Take(std::size_t request, const Piece& piece, const TableState& met) {
  Status status = Meet(request, piece, met);
  if (status.ok()) states_.Meet(piece.table, met);
  return status;
}

grpc::ByteBuffer PushMessages::Write(const Piece& piece) {
  return PushMessage(TableOf(piece), piece.samples, step_of_(piece), type_, *memory_);
}

void PushMessages::AddTo(v1::DataCall& call, const Piece& piece) {
  *call.add_pushes() = PushFields(TableOf(piece), piece.samples, step_of_(piece), type_);
}

Status PushMessages::Read(std::size_t request, const Piece& piece, const grpc::ByteBuffer& bytes) {
  v1::PushReply reply;
  if (Status status = Deserialize(bytes, reply); !status.ok()) return status;
  return Take(request, piece, reply);
}

// Notes the step that a piece became a part of. All parts of a table's step get one answer; the answer to the
// first part is kept.
Status PushMessages::Take(std::size_t request, const Piece& piece, const v1::PushReply& reply) {
  const Status lost =
      Meet(request, piece, {reply.lineage(), reply.newest_step(), reply.incarnation(), reply.lost_from()});
  known_.Acknowledge(TableOf(piece).table, {reply.lineage(), reply.table_step(), reply.incarnation()});
  if (!lost.ok()) {
    return lost.InWords(lost.message() + "; this push was applied as the table's step " +
                        std::to_string(reply.table_step()));
  }
  if (piece.part == 0) steps_[piece.table] = reply.table_step();
  return {};
}

std::string BatchExchange::method() const {
  return std::string("/slotwise.v1.Embedding/") + (batches_->pushes ? "Push" : "Lookup") +
         (batches_->many() ? "Many" : "");
}

const grpc::ByteBuffer& BatchExchange::Message() {
  if (!message_) {
    std::vector<grpc::ByteBuffer> parts;
    for (const Piece& piece : pieces()) parts.push_back(messages_->Write(piece));
    message_ = batches_->many() ? JoinMessages(kMany, parts) : parts.front();
  }
  return *message_;
}

Status BatchExchange::ReadMessage(const grpc::ByteBuffer& reply) {
  if (!batches_->many()) return ReadMessages({&reply, 1});
  const auto replies = SplitMessages(reply, kMany, "reply");
  if (!replies.ok()) {
    return {StatusCode::kInternal, "the reply is malformed: " + replies.status().message()};
  }
  if (replies->size() != pieces().size()) {
    return WrongCount(replies->size(), pieces().size());
  }
  return ReadMessages(*replies);
}

Status BatchExchange::ReadMessages(std::span<const grpc::ByteBuffer> replies) {
  for (std::size_t i = 0; i < pieces().size(); ++i) {
    if (Status status = messages_->Read(request_, pieces()[i], replies[i]); !status.ok()) return status;
  }
  messages_->NoteAnswered(pieces());
  return {};
}

void BatchExchange::AddArrays(const Piece& piece, v1::DataArrays& bytes, Body& body) {
  const TableBatch& table = TableOf(piece);
  const auto [keys, offsets, weights] = PartOf(table.checked, piece.samples);
  bytes.set_keys(Add(keys, body));
  if (batches_->pushes) {
    const auto gradients =
        table.gradients.subspan(piece.samples.first * table.checked.width, NumbersOf(piece));
    if (type_ == DataType::kFloat32) {
      bytes.set_gradients(Add(gradients, body));
    } else {
      std::vector<std::byte>& narrow = narrow_.emplace_back(gradients.size() * BytesOf(type_));
      Narrow(gradients, type_, narrow.data());
      bytes.set_gradients(Add(std::span<const std::byte>(narrow), body));
    }
  }
  if (offsets.empty() || offsets.front() == 0) {
    bytes.set_offsets(Add(offsets, body));
  } else {
    std::vector<std::uint32_t>& from_here = offsets_.emplace_back(offsets.begin(), offsets.end());
    for (std::uint32_t& offset : from_here) offset -= offsets.front();
    bytes.set_offsets(Add(std::span<const std::uint32_t>(from_here), body));
  }
  bytes.set_weights(Add(weights, body));
}

void BatchExchange::Write(v1::DataCall& call, Body& body) {
  offsets_.clear();
  narrow_.clear();
  call.set_many(batches_->many());
  for (const Piece& piece : pieces()) {
    messages_->AddTo(call, piece);
    AddArrays(piece, *call.add_arrays(), body);
  }
}

void BatchExchange::AddRoom(const Piece& piece, std::uint64_t bytes, Room& room) {
  room.push_back(type_ == DataType::kFloat32 ? std::as_writable_bytes(OutOf(piece))
                                             : std::span(narrow_.emplace_back(bytes)));
  room.push_back(std::span(padding_).first(PaddedBytes(bytes) - bytes));
}

Result<DataExchange::Room> BatchExchange::MakeRoom(const v1::DataReply& reply) {
  const auto messages =
      static_cast<std::size_t>(batches_->pushes ? reply.pushes_size() : reply.lookups_size());
  const std::size_t values = batches_->pushes ? 0 : messages;
  if (messages != pieces().size() || static_cast<std::size_t>(reply.value_bytes_size()) != values) {
    return WrongCount(messages, pieces().size());
  }
  Room room;
  if (batches_->pushes) return room;
  narrow_.clear();
  for (int i = 0; i < reply.lookups_size(); ++i) {
    const Piece& piece = pieces()[static_cast<std::size_t>(i)];
    if (Status status = CheckReplyShape(reply.lookups(i), reply.value_bytes(i), piece.samples.size(),
                                        TableOf(piece).checked.width, type_, NumbersOf(piece));
        !status.ok()) {
      return status;
    }
    AddRoom(piece, reply.value_bytes(i), room);
  }
  return room;
}

std::uint64_t BatchExchange::ValueBytes() const {
  std::uint64_t bytes = 0;
  if (batches_->pushes) return bytes;
  for (const Piece& piece : pieces()) bytes += PaddedBytes(NumbersOf(piece) * BytesOf(type_));
  return bytes;
}

Status BatchExchange::Read(const v1::DataReply& reply) {
  PlaceValues();
  int place = 0;
  for (const Piece& piece : pieces()) {
    if (Status status = messages_->Read(request_, piece, reply, place++); !status.ok()) return status;
  }
  messages_->NoteAnswered(pieces());
  return {};
}

void BatchExchange::PlaceValues() {
  if (batches_->pushes || type_ == DataType::kFloat32) return;
  auto narrow = narrow_.begin();
  for (const Piece& piece : pieces()) Widen((narrow++)->data(), type_, OutOf(piece));
}

}  // namespace slotwise::client
