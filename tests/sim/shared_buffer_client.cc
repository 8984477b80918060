#include "tests/sim/shared_buffer_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace slotwise::sim {
SharedBufferClient::SharedBufferClient(std::string name, Manner manner, bool on_device,
                                       PortConnection connection, std::uint64_t seed)
    : name_(std::move(name)),
      manner_(manner),
      on_device_(on_device),
      connection_(std::move(connection)),
      random_(seed),
      written_(SlotAt(kSlots)) {
  std::memcpy(written_.data(), connection_.memory->bytes().data(), kAlign);  // the server's
}

SharedBufferClient::~SharedBufferClient() { HangUp(); }

void SharedBufferClient::HangUp() {
  if (connection_.socket >= 0) close(std::exchange(connection_.socket, -1));
}

void SharedBufferClient::Leave(const SharedBufferCall* in_transit) {
  left_ = true;
  std::erase_if(calls_, [&](const SharedBufferCall& call) {
    return !call.handled && call.sents.empty() && &call != in_transit;
  });
  if (in_transit == nullptr) return HangUp();
  shutdown(connection_.socket, SHUT_WR);
}

// --- memory

void SharedBufferClient::Write(std::uint64_t at, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::memcpy(connection_.memory->bytes().data() + at, bytes.data(), bytes.size());
  std::memcpy(written_.data() + at, bytes.data(), bytes.size());
}

void SharedBufferClient::Scribble(std::uint64_t at, std::uint64_t bytes) {
  const std::vector<std::byte> junk(bytes, static_cast<std::byte>(random_.Below(256)));
  Write(at, junk);
}

std::span<std::byte> SharedBufferClient::ValuesOf(const SharedBufferCall& call) const {
  const v1::Allocations& places = call.head.allocations();
  return connection_.memory->bytes().subspan(places.values(), places.values_bytes());
}

void SharedBufferClient::NoteSeen(SharedBufferCall& call) const {
  const v1::Allocations& places = call.head.allocations();
  if (call.breaks_protocol) return;
  const auto body = connection_.memory->bytes().subspan(places.body(), places.body_bytes());
  call.seen.assign(body.begin(), body.end());
}

void SharedBufferClient::KeepValues(const SharedBufferCall& call) {
  if (call.sents.empty() || call.asks[0].operation != LookupRequest::kOperation) return;
  const std::vector<ValuePlace> places = ValuePlaces(call.asks);
  if (BytesOfPlaces(places) > call.head.allocations().values_bytes()) return;
  for (const auto& [at, bytes] : places) {
    const std::uint64_t first = call.head.allocations().values() + at;
    std::memcpy(written_.data() + first, connection_.memory->bytes().data() + first, bytes);
  }
}

std::string SharedBufferClient::CheckMemory() {
  if (!on_device_ && connection_.memory_is_gone()) return CheckTakenBack();
  for (const SharedBufferCall& call : calls_) KeepValues(call);
  const auto found = connection_.memory->bytes().first(written_.size());
  if (std::memcmp(found.data(), written_.data(), written_.size()) == 0) return {};
  const auto at = std::ranges::mismatch(found, written_).in1 - found.begin();
  return "byte " + std::to_string(at) + " of the shared buffer of " + name_ +
         " was written, and belongs to no call that is under way";
}

std::string SharedBufferClient::CheckTakenBack() const {
  const auto found = connection_.memory->bytes().first(written_.size());
  const bool zeros = std::ranges::all_of(found, [](std::byte byte) { return byte == std::byte{0}; });
  return zeros && !connection_.memory->alive() ? "" : "the shared buffer of " + name_ + " was not taken back";
}

void SharedBufferClient::Reuse(SharedBufferCall& call) {
  const v1::Allocations& places = call.head.allocations();
  if (!call.breaks_protocol) {
    Scribble(places.body(), places.body_bytes());
    Scribble(places.values(), places.values_bytes());
  }
  calls_.remove_if([&](const SharedBufferCall& other) { return &other == &call; });
}

// --- calls

bool SharedBufferClient::Begin(std::vector<Ask> asks, std::span<const std::string> names, bool many) {
  std::array<bool, kSlots> taken{};
  for (const SharedBufferCall& call : calls_) taken[call.slot] = true;
  const auto slot = static_cast<std::size_t>(std::ranges::find(taken, false) - taken.begin());
  if (slot == kSlots || left_ || ended) return false;
  SharedBufferCall call;
  call.slot = slot;
  call.head = HeadOf(asks, names, many);
  call.head.set_id(++ids_);
  for (std::size_t i = 0; i < asks.size(); ++i) {
    const std::vector<std::uint32_t>& offsets = asks[i].batch.offsets;
    bool one_key_a_bag = true;
    for (std::uint32_t b = 0; b < offsets.size(); ++b) one_key_a_bag = one_key_a_bag && offsets[b] == b;
    if (one_key_a_bag && random_.OneIn(2)) {
      LeaveOutOffsets(call.head, static_cast<int>(i));
    } else if (on_device_ ? random_.OneIn(2) : manner_ == Manner::kLies && random_.OneIn(30)) {
      WidenOffsets(call.head, static_cast<int>(i));
      call.breaks_protocol = !on_device_;
    }
  }
  call.asks = std::move(asks);
  for (Ask& ask : call.asks) {
    ask.caller = name_;
    ask.joined = many && ask.operation == LookupRequest::kOperation;
  }
  call.bodies.push_back(BodyOf(call.head, call.asks));
  const std::uint64_t values = BytesOfPlaces(ValuePlaces(call.asks));
  constexpr std::uint64_t kMost = kSlotBytes - 16 * kAlign;
  if (call.bodies[0].size() > kMost || values > kMost) return false;
  v1::Allocations& places = *call.head.mutable_allocations();
  places.set_body(SlotAt(slot) + random_.Below(8) * kAlign);
  places.set_body_bytes(call.bodies[0].size());
  places.set_values(SlotAt(slot) + kSlotBytes + random_.Below(8) * kAlign);
  places.set_values_bytes(values + random_.Below(4) * kAlign);
  if (!on_device_ && values > 0 && random_.OneIn(8)) places.set_values_bytes(random_.Below(values));
  Write(places.body(), call.bodies[0]);
  if (manner_ == Manner::kRewrites) AddOtherBodies(call);
  if (manner_ == Manner::kLies && random_.OneIn(2)) Lie(call);
  calls_.push_back(std::move(call));
  return true;
}

// Adds a body with other numbers, one with other offsets, and one that is wrong.
void SharedBufferClient::AddOtherBodies(SharedBufferCall& call) {
  std::vector<Ask> other = call.asks;
  for (Ask& ask : other) {
    for (Key& key : ask.batch.keys) key = Key{Value(key) ^ 1};
    for (float& weight : ask.batch.weights) weight = -weight;
    for (float& value : ask.values) value = -value;
  }
  call.bodies.push_back(BodyOf(call.head, other));
  for (Ask& ask : other) {
    std::vector<std::uint32_t>& offsets = ask.batch.offsets;
    for (std::size_t b = 1; b + 1 < offsets.size(); ++b) {
      offsets[b] =
          offsets[b - 1] + static_cast<std::uint32_t>(random_.Below(offsets.back() - offsets[b - 1] + 1));
    }
  }
  call.bodies.push_back(BodyOf(call.head, other));
  for (Ask& ask : other) {
    std::vector<std::uint32_t>& offsets = ask.batch.offsets;
    if (offsets.size() > 2)
      offsets[1 + random_.Below(offsets.size() - 2)] = static_cast<std::uint32_t>(random_.Bits());
    if (!ask.values.empty() && random_.OneIn(2)) ask.values[0] = std::numeric_limits<float>::quiet_NaN();
    if (!ask.batch.weights.empty()) ask.batch.weights.back() = std::numeric_limits<float>::infinity();
  }
  call.bodies.push_back(BodyOf(call.head, other));
}

void SharedBufferClient::Lie(SharedBufferCall& call) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  v1::Allocations& places = *call.head.mutable_allocations();
  const std::uint64_t size = connection_.memory->bytes().size();
  const bool has_body = places.body_bytes() > 0;
  const bool has_values = places.values_bytes() > 0;
  switch (random_.Below(10)) {
    case 0:  // the body is beyond the shared buffer, or its end is
      if (!has_body) return;
      places.set_body(places.body_bytes() > kAlign && random_.OneIn(2) ? size - kAlign : size);
      break;
    case 1:  // values are
      places.set_values(random_.OneIn(2) ? kMost - 63 : size - kAlign);
      places.set_values_bytes(2 * kAlign);
      break;
    case 2:  // on the server's word, or not aligned
      if (!has_values) return;
      places.set_values(random_.OneIn(2) ? 0 : places.values() + 1 + random_.Below(63));
      break;
    case 3:
      places.set_body_bytes(places.body_bytes() + kAlign);
      break;
    case 4:
      places.set_values_bytes(kMost - random_.Below(2));
      break;
    case 5:  // no room for values
      return places.set_values_bytes(places.values_bytes() / 2);
    case 6:  // where another call's body or values are
      if (calls_.empty()) return;
      places.set_values(random_.OneIn(2) ? calls_.back().head.allocations().values()
                                         : SlotAt(calls_.back().slot));
      if (places.values() % kAlign != 0 || places.values() < kAlign || places.values() > SlotAt(kSlots - 1))
        places.set_values(SlotAt(0));
      return;
    default:  // on top of the call's own arrays
      return places.set_values(places.body());
  }
  call.breaks_protocol = true;
}

SharedBufferCall* SharedBufferClient::Unsent() {
  const auto first = std::ranges::find_if(
      calls_, [](const SharedBufferCall& call) { return !call.handled && call.sents.empty(); });
  return first == calls_.end() ? nullptr : &*first;
}

void SharedBufferClient::Send(std::size_t most_calls, bool half) {
  if (frame_.empty()) {
    SharedBufferCall& call = *Unsent();
    // The id of a call that is under way; while the server reads on, which it does not beside so many calls.
    std::vector<std::uint64_t> under_way;
    for (const SharedBufferCall& other : calls_) {
      if (other.handled && AnswerTo(other.head.id()) == nullptr) under_way.push_back(other.head.id());
    }
    if (manner_ == Manner::kLies && !half && !under_way.empty() && under_way.size() < most_calls &&
        random_.OneIn(20)) {
      call.head.set_id(random_.OneOf(under_way));
      call.breaks_protocol = true;
    }
    const std::string head = call.head.SerializeAsString();
    const std::array<std::uint64_t, 2> prefix{head.size(), 0};
    frame_.assign(reinterpret_cast<const char*>(prefix.data()), sizeof(prefix));
    frame_ += head;
    sent_ = 0;
  }
  const std::size_t size = half ? frame_.size() / 2 : frame_.size() - sent_;
  send(connection_.socket, frame_.data() + sent_, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  sent_ += size;
  if (sent_ == frame_.size()) frame_.clear();
}

bool SharedBufferClient::Receive() {
  if (connection_.socket < 0) return false;
  std::array<char, 4096> bytes;
  bool any = false;
  for (;;) {
    const ssize_t size = recv(connection_.socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size <= 0) break;
    any = true;
    received_.append(bytes.data(), static_cast<std::size_t>(size));
  }
  for (;;) {
    std::array<std::uint64_t, 2> prefix;
    if (received_.size() < sizeof(prefix)) return any;
    std::memcpy(prefix.data(), received_.data(), sizeof(prefix));
    if (received_.size() < sizeof(prefix) + prefix[0] + prefix[1]) return any;
    Answer& answer = answers_.emplace_back();
    answer.head.ParseFromArray(received_.data() + sizeof(prefix), static_cast<int>(prefix[0]));
    const auto* const body =
        reinterpret_cast<const std::byte*>(received_.data()) + sizeof(prefix) + prefix[0];
    answer.body.assign(body, body + prefix[1]);
    received_.erase(0, sizeof(prefix) + prefix[0] + prefix[1]);
  }
}

const SharedBufferClient::Answer* SharedBufferClient::AnswerTo(std::uint64_t id) const {
  const auto found =
      std::ranges::find_if(answers_, [&](const Answer& answer) { return answer.head.id() == id; });
  return found == answers_.end() ? nullptr : &*found;
}

SharedBufferCall* SharedBufferClient::CallOf(std::uint64_t id) {
  const auto found = std::ranges::find_if(
      calls_, [&](const SharedBufferCall& call) { return call.handled && call.head.id() == id; });
  return found == calls_.end() ? nullptr : &*found;
}

void SharedBufferClient::Rewrite() {
  if (manner_ != Manner::kRewrites || calls_.empty() || (!on_device_ && connection_.memory_is_gone())) return;
  SharedBufferCall& call =
      *std::next(calls_.begin(), static_cast<std::ptrdiff_t>(random_.Below(calls_.size())));
  const std::span<const std::byte> body = call.bodies[random_.Below(call.bodies.size())];
  const v1::Allocations& places = call.head.allocations();
  if (body.empty()) return;
  call.rewritten = true;
  if (random_.OneIn(2)) return Write(places.body(), body);
  const std::uint64_t first = random_.Below(body.size() / kVector) * kVector;
  const std::uint64_t size = (1 + random_.Below((body.size() - first) / kVector)) * kVector;
  Write(places.body() + first, body.subspan(first, size));
  if (places.values_bytes() > 0 && random_.OneIn(4)) Scribble(places.values(), places.values_bytes());
}

}  // namespace slotwise::sim
