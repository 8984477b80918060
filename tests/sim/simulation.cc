#include "tests/sim/simulation.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/engine.h"
#include "tests/sim/clients.h"
#include "tests/sim/journal.h"
#include "tests/sim/plan.h"
#include "tests/sim/referee.h"
#include "tests/sim/short_memory.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/sim_collective.h"
#include "tests/sim/sim_exchange.h"
#include "tests/support/apart_device.h"

namespace slotwise::sim {
namespace {

// Kinds of lines in the trace.
enum class Line : std::uint64_t { kSend, kAnswer, kDecision, kKill, kStop, kFreeze, kEnd };

class Simulation final : public World, public SharedBufferRanks {
 public:
  Simulation(const Plan& plan, bool print);
  SeedResult Run();

  void Happen() override;
  bool HappenWhileIdle() override;
  Time DrawJump() override { return 1 + random_.Below(plan_.longest_jump); }

  bool MayCall(int rank) const override;
  bool IsStopping(int rank) const override;
  void Poke(int rank) override;

 private:
  class Rank;
  // A lookup's result that its client still reads.
  struct Held {
    PooledValues pooled;
    const Sent* sent;
    std::uint64_t until;
  };

  void RunRank(int rank);
  void Act();  // a client does
  void Send(int rank, std::vector<Ask> asks);
  void OnReply(Sent& sent, Reply reply);
  void LookAtHeld(bool all);
  void Kill();
  void RequestStop();
  void Freeze();
  void Trace(Line kind, std::uint64_t detail, const std::function<std::string()>& line) {
    scheduler_.Trace(static_cast<std::uint64_t>(kind), detail, line);
  }
  Rank& Draw() { return *ranks_[random_.Below(ranks_.size())]; }

  const Plan plan_;
  Random random_;
  Scheduler scheduler_;
  Wires wires_;
  Journal journal_;
  Referee referee_;
  Clients clients_;
  SharedBuffers shared_buffers_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::optional<Status>>* refused_ = nullptr;  // while a client submits: what it is refused by
  std::size_t first_refused_ = 0;                          // the request that refused_[0] is of
  std::vector<Held> held_;
  std::uint64_t kill_all_at_ = 0;
  bool looked_last_ = false;
  bool stopped_ = false;
  Outcome outcome_;
};

// What a rank's engine is given, and what the simulation knows of it.
class Simulation::Rank final : public EngineObserver, public test::LateSchedule {
 public:
  Rank(Simulation& simulation, int place)
      : number(place),
        clock(simulation.scheduler_, place, std::chrono::seconds(simulation.random_.Below(1000))),
        simulation_(simulation) {}

  void OnTaken(const Request& request, TicketNumber ticket) override {
    simulation_.referee_.OnTaken(number, request, ticket);
  }
  void OnDecision(const EngineState& state, const Decision& decision) override;

  std::size_t Steps() override {
    return simulation_.plan_.device_steps == 0
               ? 0
               : simulation_.random_.Below(simulation_.plan_.device_steps + 1);
  }
  std::size_t Choose(std::size_t streams) override {
    const std::size_t chosen = simulation_.random_.Below(streams);
    if (chosen != simulation_.plan_.slow_stream || simulation_.random_.OneIn(50)) return chosen;
    return (chosen + 1) % streams;
  }
  void BeforeWait() override { simulation_.scheduler_.Yield(number, "the device's stream"); }
  bool AwaitOthers(const std::function<bool()>& ready) noexcept override {
    // Some wait as they end a table, whose lock clients wait for.
    busy = true;
    const bool there = simulation_.scheduler_.AwaitQuietly(number, "another rank's stream", ready);
    busy = false;
    return there;
  }

  const int number;
  SimClock clock;
  Engine* engine = nullptr;  // while it can be asked
  Device* device = nullptr;
  bool busy = false;
  bool stopping = false;
  bool finished = false;

 private:
  Simulation& simulation_;
  bool in_round_ = false;
  Time last_us_ = 0;
  std::uint64_t last_ns_ = 0;
};

void Simulation::Rank::OnDecision(const EngineState& state, const Decision& decision) {
  Scheduler& scheduler = simulation_.scheduler_;
  Outcome& outcome = simulation_.outcome_;
  const std::uint64_t ns = scheduler.SpentNanoseconds(number);
  if (in_round_) {
    outcome.slowest_round_us = std::max(outcome.slowest_round_us, scheduler.now() - last_us_);
    outcome.slowest_round_ns = std::max(outcome.slowest_round_ns, ns - last_ns_);
  }
  in_round_ = decision.round.has_value();
  last_us_ = scheduler.now();
  last_ns_ = ns;
  outcome.decisions = std::max(outcome.decisions, state.decisions);
  simulation_.Trace(Line::kDecision, state.fingerprint * 8 + static_cast<std::uint64_t>(number), [&] {
    return "rank " + std::to_string(number) + " decides " + std::to_string(state.decisions) + ": " +
           (decision.round ? "round " + std::to_string(decision.round->number) + ", " +
                                 NameOf(decision.round->operation) + " of table " +
                                 std::to_string(Value(decision.round->table)) + " for " +
                                 std::to_string(decision.round->waiters.size()) + " requests"
                           : "no round") +
           ", " + std::to_string(decision.answers.size()) + " answers, " + std::to_string(state.queue_bytes) +
           " bytes";
  });
  simulation_.referee_.OnDecision(number, state, decision);
}

Simulation::Simulation(const Plan& plan, bool print)
    : plan_(plan),
      random_(plan.seed * 17 + 3),
      scheduler_(plan.seed * 13 + 5, plan.ranks, *this),
      wires_(scheduler_, plan.ranks),
      journal_(plan.ranks),
      referee_(plan_, scheduler_, journal_),
      clients_(plan_),
      shared_buffers_(plan_, scheduler_, journal_, referee_, *this) {
  scheduler_.PrintTrace(print);
  wires_.slowest_wake = plan.slowest_wake;
  wires_.gathered = [this](int rank, const Meetings::Meeting& meeting) {
    if (meeting.bytes[0].size() != sizeof(Header)) return;
    std::vector<Header> headers(meeting.bytes.size());
    for (std::size_t r = 0; r < headers.size(); ++r)
      std::memcpy(&headers[r], meeting.bytes[r].data(), sizeof(Header));
    referee_.OnHeaders(rank, headers);
  };
  for (int r = 0; r < plan.ranks; ++r) ranks_.push_back(std::make_unique<Rank>(*this, r));
}

SeedResult Simulation::Run() {
  scheduler_.Run([this](int rank) { RunRank(rank); });
  if (!scheduler_.failure() && !scheduler_.AnyKilled()) referee_.OnEnd();
  LookAtHeld(true);
  held_.clear();
  outcome_.seeds = 1;
  outcome_.events = scheduler_.events();
  outcome_.rounds = referee_.rounds();
  outcome_.requests = journal_.all().size();
  outcome_.trace_hash = scheduler_.hash();
  outcome_.shared_buffers = shared_buffers_.counts();
  return {outcome_, Describe(plan_), scheduler_.failure().value_or("")};
}

void Simulation::RunRank(int rank) {
  Rank& me = *ranks_[static_cast<std::size_t>(rank)];
  const std::unique_ptr<Device> device = plan_.apart ? test::MakeApartDevice(me) : MakeCpuDevice(1);
  // Each rank has a secret of its own, as the processes of a server do.
  const HashSecret secret(plan_.seed, static_cast<std::uint64_t>(rank));
  const std::unique_ptr<Device> short_device = MakeShortDevice(
      *device, [this, rank] { return referee_.IsShort(rank); },
      [&](const ShardPlace& place) {
        const bool mine = place.secret.low() == secret.low() && place.secret.high() == secret.high();
        if (!mine) scheduler_.Fail("rank " + std::to_string(rank) + " makes a table under another secret");
      });
  SimCollective collective(wires_, rank);
  const Exchanges exchanges = MakeSimExchanges(plan_.exchange, *device, wires_, rank);
  struct PortIsLast {  // connections may end with the engine's last requests
    SharedBuffers& shared_buffers;
    const int rank;
    ~PortIsLast() { shared_buffers.EngineIsGone(rank); }
  } const port_is_last{shared_buffers_, rank};
  Engine engine(*short_device, collective, exchanges, secret, plan_.engine, me.clock, &me);
  struct Unreachable {
    SharedBuffers& shared_buffers;
    Rank& rank;
    ~Unreachable() {
      shared_buffers.ClosePort(rank.number);
      rank.engine = nullptr;
      rank.device = nullptr;
    }
  } const unreachable{shared_buffers_, me};
  me.engine = &engine;
  shared_buffers_.OpenPort(rank, engine);
  me.device = device.get();
  engine.Run();
  me.finished = true;
  scheduler_.Await(rank, "the end of the others", [this] {
    return std::ranges::all_of(ranks_, [](const auto& other) { return other->finished; });
  });
}

void Simulation::Happen() {
  const std::uint64_t event = scheduler_.events();
  if (plan_.kill_at > 0 && event >= plan_.kill_at && !scheduler_.AnyKilled()) Kill();
  if (kill_all_at_ > 0 && event >= kill_all_at_) scheduler_.KillAll();
  if (plan_.stop_at > 0 && event >= plan_.stop_at && !stopped_) RequestStop();
  if (plan_.freeze_pause > 0 && random_.OneIn(plan_.freeze_pause)) Freeze();
  if (!clients_.done() && random_.OneIn(plan_.client_pause)) Act();
  if (plan_.apart && random_.OneIn(plan_.device_pause)) {
    Rank& rank = Draw();
    if (rank.device != nullptr) test::MakeProgress(*rank.device);
  }
  shared_buffers_.Happen();
  if (event % 64 == 0) {
    LookAtHeld(false);
    shared_buffers_.LookAtMemory();
  }
}

bool Simulation::HappenWhileIdle() {
  // However late its schedule is, a device does in the end what it was asked for.
  for (const auto& rank : ranks_) {
    if (plan_.apart && rank->device != nullptr && test::MakeProgress(*rank->device)) return true;
  }
  if (shared_buffers_.HappenWhileIdle()) return true;
  if (!clients_.done()) {
    if (!random_.OneIn(3)) return false;
    Act();
    return true;
  }
  // Idle ranks wait in no collective, so no watchdog sees that another is dead: mpirun does.
  if (scheduler_.AnyKilled() && random_.OneIn(20)) scheduler_.KillAll();
  if (referee_.open() > 0 || stopped_) return false;
  if (!looked_last_) {
    looked_last_ = true;
    for (Ask& look : clients_.LastLooks()) Send(Draw().number, {std::move(look)});
    return true;
  }
  RequestStop();
  return true;
}

void Simulation::Act() {
  const int rank = Draw().number;
  std::vector<Ask> asks = clients_.Next();
  if (asks.empty() || shared_buffers_.Offer(rank, clients_.tables(), asks)) return;
  Send(rank, std::move(asks));
}

bool Simulation::MayCall(int rank) const {
  const Rank& of = *ranks_[static_cast<std::size_t>(rank)];
  return of.engine != nullptr && !of.busy;
}

bool Simulation::IsStopping(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->stopping; }

void Simulation::Poke(int rank) { ranks_[static_cast<std::size_t>(rank)]->clock.Poke(); }

void Simulation::Send(int rank, std::vector<Ask> asks) {
  Rank& to = *ranks_[static_cast<std::size_t>(rank)];
  if (to.engine == nullptr || to.busy || asks.empty()) return;
  std::vector<Sent*> group;
  std::vector<Request> requests;
  first_refused_ = journal_.all().size();
  for (Ask& ask : asks) {
    Sent& sent = journal_.Add(rank, std::move(ask), scheduler_.now());
    group.push_back(&sent);
    requests.push_back(RequestOf(sent.ask, [this, &sent](Reply reply) { OnReply(sent, std::move(reply)); }));
    Trace(Line::kSend, sent.id, [&] { return "sends " + sent.Describe(); });
  }
  std::vector<std::optional<Status>> refused(group.size());
  refused_ = &refused;
  if (requests.size() == 1) {
    to.engine->Submit(std::move(requests[0]));
  } else {
    to.engine->Submit(std::move(requests));
  }
  refused_ = nullptr;
  to.clock.Poke();
  for (const auto& status : refused) {
    if (status && status->retry_after().count() > 0) ++outcome_.full_request_queues;
  }
  referee_.OnSubmit(rank, group, refused, to.stopping);
}

void Simulation::OnReply(Sent& sent, Reply reply) {
  ++outcome_.answers;
  Trace(Line::kAnswer, sent.id * 32 + static_cast<std::uint64_t>(reply.status.code()),
        [&] { return "answers " + std::string(ToString(reply.status.code())) + " to " + sent.Describe(); });
  if (refused_ != nullptr && sent.id >= first_refused_ && sent.id - first_refused_ < refused_->size()) {
    (*refused_)[sent.id - first_refused_] = reply.status;
  }
  referee_.OnAnswer(sent, reply);
  if (random_.OneIn(10)) {  // the client has gone
    ++outcome_.dropped_clients;
    return;
  }
  if (!reply.status.ok()) return;
  if (sent.ask.operation == CreateTableRequest::kOperation)
    clients_.Know(reply.created.id, reply.created.options);
  if (sent.ask.operation == AlterTableRequest::kOperation)
    clients_.Know(sent.ask.table, reply.altered.options);
  if (sent.ask.operation == LookupRequest::kOperation) {
    held_.push_back({std::move(reply.pooled), &sent, scheduler_.events() + random_.Below(500)});
    referee_.OnHeld(sent);
  }
}

// Memory of a result belongs to its client until the client lets go of it.
void Simulation::LookAtHeld(bool all) {
  std::erase_if(held_, [&](const Held& held) {
    if (!all && held.until > scheduler_.events()) return false;
    const bool same = IsAnswerOf(held.sent->ask, held.sent->expected->pooled, held.pooled);
    if (!same && !scheduler_.failure())
      scheduler_.Fail("the answer changed under the client of " + held.sent->Describe());
    referee_.OnLetGo(*held.sent);
    return true;
  });
}

void Simulation::Kill() {
  const int rank = Draw().number;
  Trace(Line::kKill, static_cast<std::uint64_t>(rank), [&] { return "kills rank " + std::to_string(rank); });
  ++outcome_.kills;
  scheduler_.Kill(rank);
  // mpirun notices sooner than a watchdog, or not.
  if (random_.OneIn(2)) kill_all_at_ = scheduler_.events() + random_.Below(500);
}

void Simulation::RequestStop() {
  Rank& rank = Draw();
  if (rank.engine == nullptr) return;
  if (!clients_.done()) ++outcome_.early_stops;
  stopped_ = true;
  rank.stopping = true;
  Trace(Line::kStop, static_cast<std::uint64_t>(rank.number),
        [&] { return "asks rank " + std::to_string(rank.number) + " to stop"; });
  rank.engine->RequestStop();
  rank.clock.Poke();
}

void Simulation::Freeze() {
  const int rank = Draw().number;
  const Time until = scheduler_.now() + random_.Below(100'000);
  ++outcome_.freezes;
  Trace(Line::kFreeze, until,
        [&] { return "stops rank " + std::to_string(rank) + " until " + std::to_string(until); });
  scheduler_.Freeze(rank, until);
}

}  // namespace

void Outcome::Add(const Outcome& other) {
  AddCounts(*this, other,
            {&Outcome::seeds, &Outcome::events, &Outcome::decisions, &Outcome::rounds, &Outcome::requests,
             &Outcome::answers, &Outcome::kills, &Outcome::early_stops, &Outcome::freezes,
             &Outcome::dropped_clients, &Outcome::full_request_queues});
  shared_buffers.Add(other.shared_buffers);
  slowest_round_us = std::max(slowest_round_us, other.slowest_round_us);
  slowest_round_ns = std::max(slowest_round_ns, other.slowest_round_ns);
  trace_hash = trace_hash * 31 + other.trace_hash;
}

SeedResult RunSeed(std::uint64_t seed, bool print) {
  if (!print) spdlog::set_level(spdlog::level::off);
  const Plan plan = MakePlan(seed);
  if (print) std::printf("%s\n", Describe(plan).c_str());
  const std::optional<SlowGrowth> slow = SlowGrowthOf(seed);
  return Simulation(plan, print).Run();
}

}  // namespace slotwise::sim
