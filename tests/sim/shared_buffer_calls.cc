// Judges the immediate answers to calls through a shared buffer and the requests made of them, and passes
// their answers to the referee.
#include <algorithm>
#include <memory>
#include <utility>

#include "tests/sim/shared_buffers.h"
#include "wire/status_code.h"

namespace slotwise::sim {
namespace {

Status StatusOf(const v1::DataReply& reply) {
  return {FromWireCode(reply.code()), reply.message(), std::chrono::milliseconds(reply.retry_after_ms())};
}

// Whether each vector of an array that was copied is one that some body of the call has there.
bool IsMixOf(std::span<const std::byte> found, const v1::DataCall& head, int message,
             const std::vector<std::vector<std::byte>>& bodies) {
  for (std::size_t at = 0; at < found.size(); at += kVector) {
    const auto vector = found.subspan(at, kVector);
    if (std::ranges::none_of(bodies, [&](const std::vector<std::byte>& body) {
          return std::ranges::equal(vector, ArraysIn(head, message, body).subspan(at, kVector));
        })) {
      return false;
    }
  }
  return true;
}

}  // namespace

// The server has looked at the call that was on its way: it has refused it, or handed it to its engine.
void SharedBuffers::Handled(int rank) {
  Rank& of = At(rank);
  if (of.call == nullptr) return scheduler_.Fail("a call is handled that no client has sent");
  SharedBufferClient& client = *of.sender;
  SharedBufferCall& call = *std::exchange(of.call, nullptr);
  Trace(client, "is heard: call", call.head.id());
  if (call.breaks_protocol) return scheduler_.Fail(client.name() + " lies, and is served");
  ++counts_.calls;
  if (call.rewritten) ++counts_.rewritten;
  call.handled = true;
  std::vector<std::optional<TableInfo>> tables;
  for (std::size_t i = 0; i < call.asks.size(); ++i) {
    const bool lookup = call.asks[i].operation == LookupRequest::kOperation;
    const auto m = static_cast<int>(i);
    tables.push_back(
        of.engine->FindTable(lookup ? call.head.lookups(m).table() : call.head.pushes(m).table()));
    call.asks[i] = AskIn(call.head, m, call.seen, call.asks[i]);
    if (!tables[i]) continue;
    call.asks[i].table = tables[i]->id;
    if (lookup) SetAnswerBytes(tables[i]->options, call.asks[i]);
  }
  const std::uint64_t values = BytesOfPlaces(ValuePlaces(call.asks));
  const bool no_room = client.on_device() && values > call.head.allocations().values_bytes();
  // A device copies while the client writes: what it has copied is seen when the engine has it.
  const bool any_mix = client.on_device() && client.manner() == Manner::kRewrites && !call.bodies[0].empty();
  StatusCode code = CodeOf(call.head, call.asks, tables);
  if (code == StatusCode::kOk && no_room) code = StatusCode::kInvalidArgument;

  client.Receive();
  const SharedBufferClient::Answer* const own = client.AnswerTo(call.head.id());
  const StatusCode found = own == nullptr ? StatusCode::kOk : FromWireCode(own->head.code());
  const bool refused_for_bytes = found == StatusCode::kInvalidArgument || found == StatusCode::kNotFound;
  const bool as_expected = found == code || (code == StatusCode::kOk && !refused_for_bytes);
  const bool by_a_mix =
      any_mix && tables[0] && (found == StatusCode::kInvalidArgument || code == StatusCode::kInvalidArgument);
  if (!as_expected && !by_a_mix) {
    return scheduler_.Fail(client.name() + " is answered " + std::string(ToString(found)) + " to call " +
                           std::to_string(call.head.id()) + " instead of " + std::string(ToString(code)) +
                           (own == nullptr ? "" : ": " + own->head.message()));
  }
  if (refused_for_bytes) {
    ++counts_.refused;
    return;  // the answer is looked at later
  }
  ToEngine(rank, client, call, tables);
}

void SharedBuffers::ToEngine(int rank, SharedBufferClient& client, SharedBufferCall& call,
                             const std::vector<std::optional<TableInfo>>& tables) {
  const SharedBufferClient::Answer* const own = client.AnswerTo(call.head.id());
  const bool refused = own != nullptr;
  const Status status = refused ? StatusOf(own->head) : Status();
  const bool may_mix = client.on_device() && client.manner() == Manner::kRewrites;
  const auto handled = std::make_shared<const HandledCall>(HandledCall{
      call.head, call.seen, may_mix ? call.bodies : std::vector<std::vector<std::byte>>(), tables});
  bool first = true;
  for (std::size_t i = 0; i < call.asks.size(); ++i) {
    Sent& sent = journal_.Add(rank, call.asks[i], scheduler_.now());
    call.sents.push_back(&sent);
    sent.by_call = true;
    sent.on_taken = [handled, message = static_cast<int>(i)](const Request& request, Ask& ask) {
      return Taken(*handled, message, request, ask);
    };
    std::optional<Status>& why = call.refused.emplace_back();
    const bool too_large = referee_.IsTooLarge(sent.ask, tables[i]->options);
    if (too_large) {
      why = refused && first ? status : ResourceExhausted("larger than a round");
    } else if (refused && first) {
      why = status;
    } else if (refused) {
      // The answer is the first one's. The others were refused together.
      why = call.refused[0]->retry_after().count() > 0 || ranks_.IsStopping(rank) ? *call.refused[0] : status;
    }
    first = false;
  }
  referee_.OnSubmit(rank, call.requests(), call.refused, ranks_.IsStopping(rank));
  ranks_.Poke(rank);
}

// The engine has taken a request: says why it is none of the call's message. What it has is what has to be
// done.
std::string SharedBuffers::Taken(const HandledCall& call, int message, const Request& request, Ask& ask) {
  v1::DataCall alone;
  *alone.add_arrays() = call.head.arrays(message);
  const std::vector<std::byte> found = ArraysOf(alone, 0, request);
  const auto same = [&](const Ask& one, const Ask& other) {
    return BodyOf(alone, {&one, 1}) == BodyOf(alone, {&other, 1});
  };
  const Ask taken = AskIn(alone, 0, found, ask);
  if (!same(taken, AskIn(call.head, message, call.seen, ask)) &&
      !IsMixOf(found, call.head, message, call.bodies)) {
    return "has other arrays than its shared buffer had";
  }
  ask = taken;
  if (CodeOf(alone, {&ask, 1}, {&call.tables[static_cast<std::size_t>(message)], 1}) != StatusCode::kOk)
    return "has arrays that are wrong";
  if (request.Is<PushRequest>() && request.As<PushRequest>().body != ask.body)
    return "has another hash than its arrays";
  const BatchPart& batch = *request.batch();
  if (!std::ranges::equal(batch.offsets.span(), ask.batch.offsets))
    return "has other offsets than its shared buffer had";
  return {};
}

void SharedBuffers::OnAnswer(SharedBufferClient& client, const SharedBufferClient::Answer& answer) {
  SharedBufferCall* const call = client.CallOf(answer.head.id());
  if (call == nullptr) return scheduler_.Fail(client.name() + " is answered what it did not ask");
  const Status status = StatusOf(answer.head);
  Trace(client, "hears of call", answer.head.id() * 32 + static_cast<std::uint64_t>(status.code()));
  std::vector<Reply> replies;
  if (status.ok()) {
    ++counts_.answered;
    const v1::DataReply& head = answer.head;
    if (static_cast<std::size_t>(head.lookups_size()) + static_cast<std::size_t>(head.pushes_size()) !=
        call->asks.size())
      return scheduler_.Fail(client.name() + " is answered of other messages than it sent");
    const std::vector<ValuePlace> places = ValuePlaces(call->asks);
    const bool fits = BytesOfPlaces(places) <= call->head.allocations().values_bytes();
    if (head.in_shared_buffer() != (fits && BytesOfPlaces(places) > 0))
      return scheduler_.Fail(client.name() + " finds its values elsewhere than it wanted");
    if (head.in_shared_buffer() && !client.connection().memory->alive())
      return scheduler_.Fail(client.name() + " has an answer in memory that was taken back");
    const std::span<const std::byte> values = fits ? client.ValuesOf(*call) : std::span(answer.body);
    for (std::size_t i = 0; i < call->asks.size(); ++i) {
      Reply& reply = replies.emplace_back();
      const auto m = static_cast<int>(i);
      if (call->asks[i].operation == PushRequest::kOperation) {
        const v1::PushReply& push = head.pushes(m);
        reply.applied = {push.table_step(), {push.lineage(), push.newest_step()}};
        continue;
      }
      const v1::LookupReply& lookup = head.lookups(m);
      const auto [at, bytes] = places[i];
      if (lookup.samples() != call->asks[i].samples || head.value_bytes(m) != bytes ||
          at + bytes > values.size())
        return scheduler_.Fail(client.name() + " has values of another size than it asked for");
      const auto memory =
          std::make_shared<std::vector<std::byte>>(values.begin() + static_cast<std::ptrdiff_t>(at),
                                                   values.begin() + static_cast<std::ptrdiff_t>(at + bytes));
      reply.pooled = {{memory, memory->data()},
                      bytes / BytesOf(call->asks[i].type),
                      call->asks[i].type,
                      {lookup.lineage(), lookup.table_step()}};
    }
  }
  // Who writes to its values, or lets the server write others there, cannot read them.
  const bool reads_values = client.manner() == Manner::kHonest || !answer.head.in_shared_buffer();
  referee_.OnCallAnswer(call->requests(), call->refused, status, replies, reads_values);
  const std::string why = client.CheckMemory();
  if (!why.empty()) return scheduler_.Fail(why);
  client.KeepValues(*call);
  client.Reuse(*call);
}

}  // namespace slotwise::sim
