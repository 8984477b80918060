#include "tests/sim/shared_buffers.h"

#include <algorithm>
#include <utility>

namespace slotwise::sim {
namespace {

constexpr std::uint64_t kTraceKind = 32;  // beside the simulation's own lines
constexpr std::size_t kClientsOfRank = 3;
constexpr std::uint64_t kMostClients = 24;

}  // namespace

void SharedBufferCounts::Add(const SharedBufferCounts& other) {
  AddCounts(*this, other,
            {&SharedBufferCounts::calls, &SharedBufferCounts::answered, &SharedBufferCounts::refused,
             &SharedBufferCounts::rewritten, &SharedBufferCounts::cut_off, &SharedBufferCounts::left});
}

SharedBuffers::SharedBuffers(const Plan& plan, Scheduler& scheduler, Journal& journal, Referee& referee,
                             SharedBufferRanks& ranks)
    : plan_(plan),
      scheduler_(scheduler),
      journal_(journal),
      referee_(referee),
      ranks_(ranks),
      random_(plan.seed * 41 + 13),
      ranks_of_(static_cast<std::size_t>(plan.ranks)) {}

void SharedBuffers::Trace(const SharedBufferClient& client, const char* what, std::uint64_t detail) {
  scheduler_.Trace(kTraceKind, detail,
                   [&] { return client.name() + " " + what + " " + std::to_string(detail); });
}

// --- transports

void SharedBuffers::OpenPort(int rank, Engine& engine) {
  if (plan_.shared_buffer_calls == 0) return;
  At(rank).engine = &engine;
  At(rank).port = std::make_unique<DataPort>(
      engine, plan_.shared_buffer_calls,
      [this] {
        handled_ = true;
        RewriteAll();
      },
      [this] {
        if (random_.OneIn(4)) RewriteAll();
      });
}

void SharedBuffers::ClosePort(int rank) {
  Rank& of = At(rank);
  if (of.port == nullptr) return;
  while (judging() && Step(rank, true)) {
  }
  if (judging() && of.call != nullptr)
    scheduler_.Fail("a frame of " + of.sender->name() + " is never handled");
  for (const auto& client : of.clients) {
    for (const SharedBufferCall& call : client->calls()) {
      if (judging() && call.handled && !client->ended)
        scheduler_.Fail(client->name() + " has no answer to call " + std::to_string(call.head.id()));
    }
  }
  of.closing = true;
  of.port->Close();
  of.call = nullptr;
  if (judging()) LookForEnds(rank);
  of.engine = nullptr;
}

void SharedBuffers::EngineIsGone(int rank) {
  Rank& of = At(rank);
  if (of.port == nullptr) return;
  if (judging()) {
    const std::string leaks = of.port->Leaks();
    if (!leaks.empty()) scheduler_.Fail("rank " + std::to_string(rank) + " ends with " + leaks);
    LookForEnds(rank);
  }
  for (const auto& client : of.clients) {
    if (judging() && !client->gone) scheduler_.Fail("the connection of " + client->name() + " does not end");
    const std::string why = judging() ? client->CheckMemory() : "";
    if (!why.empty()) scheduler_.Fail(why);
  }
  of.clients.clear();
  of.port.reset();
}

// --- clients

SharedBufferClient* SharedBuffers::DrawClient(int rank) {
  Rank& of = At(rank);
  std::vector<SharedBufferClient*> there;
  for (const auto& client : of.clients) {
    if (!client->left() && !client->ended) there.push_back(client.get());
  }
  if (there.size() == kClientsOfRank || (!there.empty() && (clients_ == kMostClients || random_.OneIn(2)))) {
    return random_.OneOf(there);
  }
  if (clients_ == kMostClients) return nullptr;
  const auto manner = static_cast<Manner>(random_.Below(3));
  const bool on_device = random_.OneIn(2);
  const std::string kind = manner == Manner::kHonest     ? "honest"
                           : manner == Manner::kRewrites ? "rewriting"
                                                         : "lying";
  const std::string name = "the " + kind + " client " + std::to_string(++clients_) + " of rank " +
                           std::to_string(rank) + (on_device ? ", by a device" : ", by the host");
  of.clients.push_back(std::make_unique<SharedBufferClient>(
      name, manner, on_device, of.port->Connect(name, on_device), plan_.seed * 1009 + clients_));
  Trace(*of.clients.back(), "connects", clients_);
  return of.clients.back().get();
}

bool SharedBuffers::Offer(int rank, const std::map<TableId, TableOptions>& tables,
                          const std::vector<Ask>& asks) {
  Rank& of = At(rank);
  if (of.engine == nullptr || of.closing || !ranks_.MayCall(rank) || random_.OneIn(3)) return false;
  const Operation operation = asks[0].operation;
  if (operation != LookupRequest::kOperation && operation != PushRequest::kOperation) return false;
  std::vector<std::string> names;
  for (const Ask& ask : asks) {
    // Who has heard of a table's end may know its name.
    const auto table = tables.find(ask.table);
    if (ask.operation != operation || table == tables.end()) return false;
    // The one answer to several pushes does not say which were taken in beside one that is too large.
    if (asks.size() > 1 && referee_.IsTooLarge(ask, table->second)) return false;
    names.push_back(table->second.name.str());
  }
  SharedBufferClient* const client = DrawClient(rank);
  return client != nullptr && client->Begin(asks, names, asks.size() > 1 || random_.OneIn(5));
}

void SharedBuffers::RewriteAll() {
  for (Rank& of : ranks_of_) {
    for (const auto& client : of.clients) client->Rewrite();
  }
}

void SharedBuffers::Leave(Rank& of, SharedBufferClient& client) {
  const bool sends = of.sender == &client && of.call != nullptr;
  const bool in_transit = sends && !of.half;
  const bool waits = std::ranges::any_of(client.calls(), &SharedBufferCall::handled);
  if (waits) ++counts_.left;
  client.Leave(in_transit ? of.call : nullptr);
  if (sends && of.half) of.call = nullptr;
  Trace(client, "leaves", client.calls().size());
}

// --- what happens

void SharedBuffers::Happen() {
  if (plan_.shared_buffer_calls == 0) return;
  RewriteAll();
  const int rank = static_cast<int>(random_.Below(ranks_of_.size()));
  if (random_.OneIn(3)) Step(rank, false);
  Rank& of = At(rank);
  if (of.clients.empty() || of.closing || !random_.OneIn(plan_.shared_buffer_leave_pause)) return;
  SharedBufferClient& client = *random_.OneOf(of.clients);
  if (!client.left() && !client.ended) Leave(of, client);
}

bool SharedBuffers::HappenWhileIdle() {
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (Step(rank, true)) return true;
  }
  return false;
}

void SharedBuffers::LookAtMemory() {
  for (const Rank& of : ranks_of_) {
    for (const auto& client : of.clients) {
      const std::string why = client->CheckMemory();
      if (!why.empty()) return scheduler_.Fail(why);
    }
  }
}

void SharedBuffers::SendAFrame(Rank& of) {
  std::vector<SharedBufferClient*> ready;
  for (const auto& client : of.clients) {
    if (!client->left() && !client->ended && client->Unsent() != nullptr) ready.push_back(client.get());
  }
  if (ready.empty()) return;
  of.sender = random_.OneOf(ready);
  of.call = of.sender->Unsent();
  of.half = random_.OneIn(6);
  of.sender->Receive();
  of.sender->Send(plan_.shared_buffer_calls, of.half);
  Trace(*of.sender, of.half ? "sends half of call" : "sends call", of.call->head.id());
}

bool SharedBuffers::Step(int rank, bool all) {
  Rank& of = At(rank);
  if (of.engine == nullptr || !ranks_.MayCall(rank)) return false;
  bool any = false;
  if (of.call == nullptr) {
    SendAFrame(of);
    any = of.call != nullptr;
  } else if (of.half) {
    of.sender->Send(plan_.shared_buffer_calls, false);
    of.half = false;
    any = true;
  }
  if (of.call != nullptr) of.sender->NoteSeen(*of.call);
  handled_ = false;
  any = of.port->Poll() || any;
  if (handled_ && !scheduler_.failure()) Handled(rank);
  LookForEnds(rank);
  for (const auto& client : of.clients) {
    if (client->ended) continue;
    any = client->Receive() || any;
    while (!client->answers().empty() && !scheduler_.failure() && (all || random_.OneIn(2))) {
      any = true;
      const SharedBufferClient::Answer answer = std::move(client->answers().front());
      client->answers().pop_front();
      OnAnswer(*client, answer);
    }
  }
  return any;
}

// Connections end because their clients have left, or lied about places.
void SharedBuffers::LookForEnds(int rank) {
  Rank& of = At(rank);
  for (const auto& client : of.clients) {
    if (!client->ended && client->connection().HasEnded()) {
      const bool lied = of.sender == client.get() && of.call != nullptr && of.call->breaks_protocol;
      if (!client->left() && !lied && !of.closing) scheduler_.Fail("the server cuts off " + client->name());
      if (lied) ++counts_.cut_off;
      if (of.sender == client.get()) of.call = nullptr;
      client->ended = true;
      client->HangUp();
      Trace(*client, "has no connection any more", client->calls().size());
      for (const SharedBufferCall& call : client->calls()) referee_.OnCallLost(call.requests());
      std::erase_if(client->calls(), [](const SharedBufferCall& call) { return call.sents.empty(); });
    }
    if (!client->ended || client->gone || !client->connection().all_is_gone()) continue;
    const std::string why = client->CheckMemory();
    for (const SharedBufferCall& call : client->calls()) referee_.OnCallGone(call.requests());
    client->calls().clear();
    client->gone = true;
    Trace(*client, "is gone", 0);
    if (!why.empty()) scheduler_.Fail(why);
  }
}

}  // namespace slotwise::sim
