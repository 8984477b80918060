#include "client/cpp/batch_exchange.h"

#include <span>
#include <string>

#include "client/cpp/messages.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/nested.h"

namespace slotwise::client {
namespace {

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

}  // namespace

std::string BatchExchange::method() const {
  return std::string("/slotwise.v1.Embedding/") + (batches_->pushes ? "Push" : "Lookup") +
         (batches_->many() ? "Many" : "");
}

const grpc::ByteBuffer& BatchExchange::Message() {
  if (!message_) {
    std::vector<grpc::ByteBuffer> parts;
    for (const Piece& piece : pieces())
      parts.push_back(messages_->Write(batches_->tables[piece.table], piece));
    message_ = batches_->many() ? JoinMessages(kMany, parts) : parts.front();
  }
  return *message_;
}

Status BatchExchange::ReadMessage(const grpc::ByteBuffer& reply) {
  if (!batches_->many()) return messages_->Read(request_, {reply});
  const auto replies = SplitMessages(reply, kMany, "reply");
  if (!replies.ok()) {
    return {StatusCode::kInternal, "the reply is malformed: " + replies.status().message()};
  }
  if (replies->size() != pieces().size()) {
    return {StatusCode::kInternal, "the reply has " + std::to_string(replies->size()) +
                                       " messages, not one for each of the request's " +
                                       std::to_string(pieces().size())};
  }
  return messages_->Read(request_, *replies);
}

void BatchExchange::AddArrays(const TableBatch& table, const Piece& piece, v1::DataArrays& bytes,
                              Body& body) {
  const CheckedBatch& batch = table.checked;
  const std::uint64_t first = piece.samples.first * batch.slots;
  const std::uint64_t last = piece.samples.last * batch.slots;
  const auto& [keys, offsets, weights] = batch.view;
  const std::uint64_t first_key = offsets.empty() ? first : offsets[first];
  const std::uint64_t key_count = (offsets.empty() ? last : offsets[last]) - first_key;
  bytes.set_keys(Add(keys.subspan(first_key, key_count), body));
  if (batches_->pushes) {
    const auto gradients =
        table.gradients.subspan(piece.samples.first * batch.width, piece.samples.size() * batch.width);
    if (type_ == DataType::kFloat32) {
      bytes.set_gradients(Add(gradients, body));
    } else {
      std::vector<std::byte>& narrow = narrow_.emplace_back(gradients.size() * BytesOf(type_));
      Narrow(gradients, type_, narrow.data());
      bytes.set_gradients(Add(std::span<const std::byte>(narrow), body));
    }
  }
  if (!offsets.empty()) {
    const auto part = offsets.subspan(first, last - first + 1);
    if (part.front() == 0) {
      bytes.set_offsets(Add(part, body));
    } else {
      std::vector<std::uint32_t>& from_here = offsets_.emplace_back(part.begin(), part.end());
      for (std::uint32_t& offset : from_here) offset -= offsets[first];
      bytes.set_offsets(Add(std::span<const std::uint32_t>(from_here), body));
    }
  }
  if (!weights.empty()) bytes.set_weights(Add(weights.subspan(first_key, key_count), body));
}

void BatchExchange::Write(v1::DataCall& call, Body& body) {
  offsets_.clear();
  narrow_.clear();
  call.set_many(batches_->many());
  for (const Piece& piece : pieces()) {
    const TableBatch& table = batches_->tables[piece.table];
    messages_->AddTo(call, table, piece);
    AddArrays(table, piece, *call.add_arrays(), body);
  }
}

std::span<float> BatchExchange::OutOf(const Piece& piece) const {
  const TableBatch& table = batches_->tables[piece.table];
  return table.out.subspan(piece.samples.first * table.checked.width,
                           piece.samples.size() * table.checked.width);
}

Status CheckReplyCounts(const v1::DataReply& reply, const Batches& batches, std::size_t pieces) {
  const int messages = batches.pushes ? reply.pushes_size() : reply.lookups_size();
  if (static_cast<std::size_t>(messages) == pieces &&
      reply.value_bytes_size() == (batches.pushes ? 0 : messages)) {
    return {};
  }
  return {StatusCode::kInternal, "the reply has " + std::to_string(messages) +
                                     " messages, not one for each of the request's " +
                                     std::to_string(pieces)};
}

Result<DataExchange::Room> BatchExchange::MakeRoom(const v1::DataReply& reply) {
  if (Status status = CheckReplyCounts(reply, *batches_, pieces().size()); !status.ok()) return status;
  Room room;
  if (batches_->pushes) return room;
  narrow_.clear();
  for (int i = 0; i < reply.lookups_size(); ++i) {
    const Piece& piece = pieces()[static_cast<std::size_t>(i)];
    const std::uint64_t bytes = reply.value_bytes(i);
    const std::span<float> out = OutOf(piece);
    if (Status status = CheckReplyShape(reply.lookups(i), bytes, piece.samples.size(),
                                        batches_->tables[piece.table].checked.width, type_, out.size());
        !status.ok()) {
      return status;
    }
    room.push_back(type_ == DataType::kFloat32 ? std::as_writable_bytes(out)
                                               : std::span(narrow_.emplace_back(bytes)));
    room.push_back(std::span(padding_).first(PaddedBytes(bytes) - bytes));
  }
  return room;
}

std::uint64_t BatchExchange::ValueBytes() const {
  std::uint64_t bytes = 0;
  if (batches_->pushes) return bytes;
  for (const Piece& piece : pieces()) bytes += PaddedBytes(OutOf(piece).size() * BytesOf(type_));
  return bytes;
}

Status BatchExchange::Read(const v1::DataReply& reply) {
  auto narrow = narrow_.begin();
  if (!batches_->pushes && type_ != DataType::kFloat32) {
    for (const Piece& piece : pieces()) Widen((narrow++)->data(), type_, OutOf(piece));
  }
  return messages_->Read(request_, reply);
}

}  // namespace slotwise::client
