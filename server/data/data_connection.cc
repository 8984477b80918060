#include "server/data/data_connection.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "server/data/data_call.h"
#include "server/data/device_call.h"
#include "server/intake/rare_log.h"
#include "wire/error_details.h"
#include "wire/status_code.h"
#include "wire/trace_id.h"

namespace slotwise {
namespace {

// A message of a call without its arrays takes about 100 bytes.
constexpr std::uint64_t kMostHeadBytes = std::uint64_t{8} << 20;
constexpr std::size_t kMostReason = 1024;  // bytes of a refusal's text, as through gRPC

}  // namespace

DataConnection::DataConnection(Socket socket, std::string peer, DataShared& shared,
                               std::shared_ptr<ClientSharedBuffer> shared_buffer, BusyPolling& loop,
                               std::shared_ptr<void> token)
    : FrameStream(std::move(socket), {.frame_bytes = shared.options.max_message_bytes,
                                      .head_bytes = kMostHeadBytes,
                                      .write_timeout = shared.options.reply_timeout,
                                      .read_timeout = shared.options.reply_timeout}),
      peer_(std::move(peer)),
      shared_(shared),
      shared_buffer_(std::move(shared_buffer)),
      loop_(loop),
      token_(std::move(token)) {}

bool DataConnection::OnLargeHead(std::uint64_t bytes) {
  received_head_ = {};
  auto reservation = shared_.received.Reserve(bytes);
  if (reservation) received_head_ = std::move(*reservation);
  return reservation.has_value();
}

std::optional<FrameStream::Room> DataConnection::OnHead(std::span<const std::byte> head,
                                                        std::uint64_t body_bytes, std::string& why) {
  why = HeadObjection(head);
  if (!why.empty()) return std::nullopt;
  if (head.size() > kBufferBytes && !OnLargeHead((1 + kParsed) * head.size())) {
    why = "there is no memory for a frame's head of " + std::to_string(head.size()) + " bytes";
    return std::nullopt;
  }
  if (!call_.ParseFromArray(head.data(), static_cast<int>(head.size()))) {
    why = "a frame's head is no DataCall";
    return std::nullopt;
  }
  places_ = {};
  const bool in_frame = body_bytes > 0;
  if (call_.has_allocations()) {
    if (in_frame) why = "a frame has a body, and its call has it in the shared buffer";
    if (why.empty()) why = FindPlaces();
    if (!why.empty()) return std::nullopt;
    body_bytes = places_.body.size();
  }
  why = Objection(call_, body_bytes, OnDevice());
  if (!why.empty()) return std::nullopt;

  frame_bytes_ = head.size() + body_bytes;
  refusal_ = {};
  deadline_ = Caller::Clock::now() + std::chrono::milliseconds(call_.timeout_ms());
  block_.reset();
  auto reservation = shared_.received.Reserve(body_bytes);
  if (!reservation) {
    refusal_ = ResourceExhausted("this rank is receiving too much at once (twice limits.max_queue_mib)",
                                 shared_.engine.RetryAfter());
  } else {
    received_ = std::move(*reservation);
    try {
      if (body_bytes > 0 && !OnDevice()) block_ = shared_.engine.arrays().Take<std::byte>(body_bytes);
    } catch (const std::bad_alloc&) {
      refusal_ =
          ResourceExhausted("there is no memory for the request's arrays", shared_.engine.RetryAfter());
    }
  }
  if (!refusal_.ok() || !in_frame) return Room{.skip = true};
  return Room{.buffers = {asio::mutable_buffer(block_.get(), body_bytes)}};
}

std::string DataConnection::FindPlaces() {
  if (shared_buffer_ == nullptr) return "a call has places in a shared buffer, and there is none";
  const v1::Allocations& places = call_.allocations();
  if (places.body_bytes() > shared_.options.max_message_bytes && !shared_buffer_->on_device) {
    return "a call has " + std::to_string(places.body_bytes()) + " bytes in the shared buffer: at most " +
           std::to_string(shared_.options.max_message_bytes) + " are taken";
  }
  const auto place = [&](std::uint64_t at, std::uint64_t bytes) {
    return bytes > 0 ? shared_buffer_->Place(at, bytes) : std::span<std::byte>();
  };
  const auto its_body = place(places.body(), places.body_bytes());
  const auto values = place(places.values(), places.values_bytes());
  if (!its_body || !values) return "a call has places that are none of its shared buffer";
  places_ = {.body = *its_body, .values = *values};
  return {};
}

bool DataConnection::OnBody() {
  const std::uint64_t id = call_.id();
  const Caller caller(peer_, deadline_, call_.pushes_size() > 0 ? CallKind::kPush : CallKind::kLookup,
                      shared_.gate.AuthenticateToken(call_.token()), TraceIdOf(call_.traceparent()));
  caller.times().NoteBytesIn(frame_bytes_);
  bool full = false;
  {
    const std::lock_guard lock(calls_mutex_);
    if (!calls_.try_emplace(id, caller).second) {
      End("two calls that are under way have the id " + std::to_string(id));
      return false;
    }
    full = full_ = calls_.size() + answers_ >= shared_.options.max_calls_per_connection;
  }
  const Status closed = shared_.gate.Enter(caller);
  const AnswerCall answer = [connection = self(), id, caller](Result<EmbeddingAnswers> answers) {
    connection->Answer(id, caller, std::move(answers));
  };
  if (!closed.ok()) {
    answer(closed);
  } else if (!refusal_.ok()) {
    answer(refusal_);
  } else if (caller.late()) {
    answer(DeadlineExceeded("the deadline passed before the request was read"));
  } else {
    Submit(caller, answer);
  }
  block_.reset();
  received_ = {};
  // A message keeps its memory for the next call. A large one is dropped, as no caller is charged for it.
  constexpr int kKeptMessages = 64;
  if (call_.arrays_size() > kKeptMessages || received_head_.bytes() > 0) call_ = {};
  received_head_ = {};
  return !full;
}

void DataConnection::SubmitOnDevice(const Caller& caller, const AnswerCall& answer) {
  const FindTable find_table = shared_.find_table(caller);
  // The trainer's next call comes soon. A machine without a GPU has better uses for its processors.
  if (!shared_.engine.device().SharesHostMemory()) loop_.StayAwake(kBusyPollingTime);
  const auto busy = [&] {
    answer(ResourceExhausted("there is no device memory for the request's arrays (limits.max_gpu_shared_mib)",
                             shared_.engine.RetryAfter()));
  };
  auto charge = shared_.shared_buffers.ReserveCopies(BytesOfCopies(call_));
  if (!charge) return busy();
  DeviceBody body{places_.body, *shared_buffer_->arrivals, std::move(*charge)};
  try {
    if (call_.pushes_size() > 0) {
      auto pushes = CheckPushesOnDevice(call_, body, find_table);
      if (!pushes.ok()) return answer(pushes.status());
      return SubmitPushes(shared_.engine, caller, std::move(*pushes), call_.many(), answer);
    }
    auto lookups = CheckLookupsOnDevice(call_, body, find_table);
    if (!lookups.ok()) return answer(lookups.status());
    if (!PlaceValues(places_.values, shared_buffer_, true, *lookups)) {
      return answer(InvalidArgument("the call's place for values has " +
                                    std::to_string(places_.values.size()) + " bytes, and they take " +
                                    std::to_string(BytesOfValues(*lookups))));
    }
    SubmitLookups(shared_.engine, caller, std::move(*lookups), call_.many(), answer);
  } catch (const std::bad_alloc&) {
    busy();
  }
}

void DataConnection::Submit(const Caller& caller, const AnswerCall& answer) {
  if (OnDevice()) return SubmitOnDevice(caller, answer);
  const FindTable find_table = shared_.find_table(caller);
  // The client may write the arrays until they are copied; the copies are safe from it.
  if (!places_.body.empty()) std::memcpy(block_.get(), places_.body.data(), places_.body.size());
  if (call_.pushes_size() > 0) {
    auto pushes = CheckPushes(call_, block_, find_table);
    if (!pushes.ok()) return answer(pushes.status());
    return SubmitPushes(shared_.engine, caller, std::move(*pushes), call_.many(), answer);
  }
  auto lookups = CheckLookups(call_, block_, find_table);
  if (!lookups.ok()) return answer(lookups.status());
  if (call_.has_allocations()) PlaceValues(places_.values, shared_buffer_, false, *lookups);
  SubmitLookups(shared_.engine, caller, std::move(*lookups), call_.many(), answer);
}

void DataConnection::Answer(std::uint64_t id, const Caller& caller, Result<EmbeddingAnswers> its_answers) {
  auto answers = WithoutLateRows(caller, std::move(its_answers));
  const Status outcome = answers.status();
  v1::DataReply reply;
  OutgoingFrame frame;
  reply.set_id(id);
  if (!answers.ok()) {
    reply.set_code(WireCode(answers.status().code()));
    reply.set_reason(ToProto(answers.status().reason()));
    reply.set_message(answers.status().message().substr(0, kMostReason));
    reply.set_retry_after_ms(static_cast<std::uint32_t>(answers.status().retry_after().count()));
  } else {
    auto kept = std::make_shared<EmbeddingAnswers>(std::move(*answers));
    for (const auto& answer : *kept) {
      if (const auto* const push = std::get_if<PushAnswer>(&answer)) {
        *reply.add_pushes() = MessageOf(*push, shared_.engine.instance());
        continue;
      }
      const auto& lookup = std::get<LookupAnswer>(answer);
      *reply.add_lookups() = MessageOf(lookup, shared_.engine.instance());
      reply.add_value_bytes(lookup.values.bytes());
      if (shared_buffer_ != nullptr && shared_buffer_->Has(lookup.values.values.get())) {
        reply.set_in_shared_buffer(true);
        continue;
      }
      AddArray({static_cast<const std::byte*>(lookup.values.values.get()), lookup.values.bytes()},
               frame.body);
    }
    frame.keeps = std::move(kept);
  }
  frame.head = reply.SerializeAsString();
  std::uint64_t bytes = frame.head.size();
  for (const std::uint64_t values : reply.value_bytes()) bytes += PaddedBytes(values);
  caller.times().NoteBytesOut(bytes);
  caller.times().NoteReply(outcome);
  frame.done = [connection = self(), caller] {
    connection->shared_.gate.Leave(caller);
    bool read_on = false;
    {
      const std::lock_guard lock(connection->calls_mutex_);
      --connection->answers_;
      read_on = std::exchange(connection->full_, false);
    }
    if (read_on) connection->Resume();
  };
  {
    // A client with the answer may use the id again, and may have it before the system reports the send.
    const std::lock_guard lock(calls_mutex_);
    calls_.erase(id);
    ++answers_;
  }
  Send(std::move(frame));
}

void DataConnection::OnEnd(const std::string& why, bool by_peer) {
  static RareLog log(std::chrono::minutes(1), 3);
  if (!by_peer && !shared_.stopping) {
    if (const auto held_back = log.Pass()) {
      spdlog::warn("cut off {}: {} ({} more since the last such line)", peer_, why, *held_back);
    }
  }
  const std::lock_guard lock(calls_mutex_);
  for (const auto& [id, caller] : calls_) caller.Leave();
}

}  // namespace slotwise
