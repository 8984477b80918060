#include "client/cpp/data_stream.h"

#include <limits>
#include <utility>

namespace slotwise::client {
namespace {

// Calls with fewer bytes, values included, go by the socket.
constexpr std::uint64_t kLeastInSharedBuffer = 4096;

}  // namespace

DataStream::DataStream(DataConnecting::Made made, std::weak_ptr<Owner> owner)
    : FrameStream(std::move(made.socket), {.frame_bytes = std::numeric_limits<std::uint64_t>::max() >> 1}),
      owner_(std::move(owner)),
      gpu_(std::move(made.gpu)) {
  if (made.shared_buffer) shared_buffer_.emplace(std::move(made.shared_buffer));
}

Status DataStream::UseSharedBuffer(std::uint64_t id, DataExchange& exchange, v1::DataCall& head,
                                   OutgoingFrame& frame) {
  const std::uint64_t value_bytes = exchange.ValueBytes();
  std::optional<v1::Allocations> places;
  if (OnDevice* const of = exchange.on_device()) {
    if (gpu_ == nullptr) return {StatusCode::kInternal, "the connection has no memory of the device"};
    auto there = gpu_->Put(id, frame.body, value_bytes, *of);
    if (!there.ok()) return there.status();
    places = std::move(*there);
  } else if (shared_buffer_) {
    std::uint64_t bytes = value_bytes;
    for (const auto& piece : frame.body) bytes += piece.size();
    if (bytes >= kLeastInSharedBuffer) places = shared_buffer_->Put(id, frame.body, value_bytes);
  }
  if (!places) return {};
  *head.mutable_allocations() = std::move(*places);
  frame.body.clear();
  return {};
}

bool DataStream::TakeFromSharedBuffer(std::uint64_t id, DataExchange& exchange,
                                      const DataExchange::Room& room) const {
  if (exchange.on_device() == nullptr) return shared_buffer_ && shared_buffer_->Get(id, room);
  if (gpu_ == nullptr) return false;
  exchange.TakeValues(gpu_->TakeValues(id));
  return true;
}

Result<FrameStream::Room> DataStream::MakeRoom(DataExchange& exchange, const v1::DataReply& reply,
                                               std::uint64_t body_bytes) const {
  const auto room = exchange.MakeRoom(reply);
  if (!room.ok()) return room.status();
  Room to;
  if (reply.in_shared_buffer() || exchange.on_device() != nullptr) {
    if (body_bytes == 0 && TakeFromSharedBuffer(reply.id(), exchange, *room)) return to;
    return Unavailable("the server has taken its memory back");
  }
  std::uint64_t bytes = 0;
  for (const auto& piece : *room) {
    bytes += piece.size();
    if (!piece.empty()) to.buffers.emplace_back(piece.data(), piece.size());
  }
  if (bytes == body_bytes) return to;
  return Status(StatusCode::kInternal, "a reply has " + std::to_string(body_bytes) +
                                           " bytes of values, not " + std::to_string(bytes));
}

std::optional<FrameStream::Room> DataStream::OnHead(std::span<const std::byte> head, std::uint64_t body_bytes,
                                                    std::string& why) {
  reply_.Clear();
  if (head.size() > std::numeric_limits<int>::max() ||
      !reply_.ParseFromArray(head.data(), static_cast<int>(head.size()))) {
    why = "a frame's head is no DataReply";
    return std::nullopt;
  }
  const auto owner = owner_.lock();
  if (owner == nullptr) {
    why = "the client is closed";
    return std::nullopt;
  }
  return owner->RoomFor(*this, reply_, body_bytes);
}

bool DataStream::OnBody() {
  if (shared_buffer_) shared_buffer_->Free(reply_.id());
  if (gpu_) gpu_->Free(reply_.id());
  if (const auto owner = owner_.lock()) owner->Answered(reply_);
  return true;
}

void DataStream::OnEnd(const std::string& why, bool /*by_peer*/) {
  if (gpu_) gpu_->End();
  if (const auto owner = owner_.lock()) owner->Lost(*this, why);
}

}  // namespace slotwise::client
