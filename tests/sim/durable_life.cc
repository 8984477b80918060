#include <algorithm>
#include <charconv>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/operations/checkpoint_requests.h"
#include "server/engine/operations/list_evicted.h"
#include "server/engine/operations/summarize.h"
#include "server/engine/schedule/round_scheduler.h"
#include "tests/sim/durable_simulation.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/sim_collective.h"
#include "tests/sim/sim_exchange.h"
#include "tests/sim/sim_threads.h"
#include "tests/support/apart_device.h"

namespace slotwise::sim {
namespace {

constexpr int kThreads = 3;  // a rank has beside its engine's

class Life final : public World {
 public:
  Life(const LifePlan& plan, SimFiles& files, bool damaged, DurableHistory& history, DurableClients& clients,
       bool print, LifeOutcome& outcome);

  void Run();
  std::string failure() const { return scheduler_.failure().value_or(""); }

  void Happen() override;
  bool HappenWhileIdle() override;
  Time DrawJump() override { return 1 + random_.Below(plan_.ranks.longest_jump); }

 private:
  class Rank;
  // Until kAsking only the simulation asks.
  enum class Phase : std::uint8_t { kRecovering, kLooking, kAsking, kLookingAgain, kStopping };
  struct Sent {
    std::size_t op = 0;
    std::size_t part = 0;
    bool waited = false;  // its round answers it
    bool answered = false;
  };

  void RunRank(Rank& me);
  void OnRecovered(Rank& rank, const Result<Recovered>& recovered);
  void BeginToLook();
  void Summarize(std::size_t table, std::function<void(const TableSummary&)> then);
  void CountEvicted(std::size_t table);
  void OnLooked();
  void Act();
  void Send(const DurableClients::Message& message);
  void OnReply(Sent& sent, const Reply& reply);
  void SaveCheckpoint();
  void KillRank(int rank);
  void KillAsPlanned();
  void RequestStop();
  void SetRoom();
  void Fail(const std::string& what) {
    if (!what.empty()) scheduler_.Fail(what);
  }
  void Trace(std::uint64_t kind, std::uint64_t detail, const std::function<std::string()>& line) {
    scheduler_.Trace(kind, detail, line);
  }
  bool DiskHasFailed() const { return plan_.fail_at > 0 && files_.operations() >= fail_operation_; }
  Rank& Draw() { return *ranks_[random_.Below(ranks_.size())]; }

  const LifePlan& plan_;
  SimFiles& files_;
  const bool damaged_;
  DurableHistory& history_;
  DurableClients& clients_;
  LifeOutcome& outcome_;
  Random random_;
  Scheduler scheduler_;
  Wires wires_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::pair<int, TicketNumber>, Sent*> tickets_;
  std::deque<Sent> sent_;
  std::vector<ObservedTable> observed_;
  std::size_t looks_ = 0;  // that were not answered
  std::size_t open_ = 0;   // clients' requests that were not answered
  std::uint64_t asked_ = 0;
  std::optional<std::uint64_t> recovered_;  // the round
  Phase phase_ = Phase::kRecovering;
  bool stopped_ = false;
  bool full_ = false;
  bool failed_to_recover_ = false;
  const std::uint64_t fail_operation_;
  std::uint64_t kill_all_at_ = 0;
};

class Life::Rank final : public EngineObserver, public test::LateSchedule {
 public:
  Rank(Life& life, int place)
      : number(place),
        clock(life.scheduler_, place, std::chrono::seconds(life.random_.Below(1000))),
        threads(life.scheduler_, place, Helpers(life, place), [this] { clock.Poke(); }),
        files(MakeSteppedFiles(life.files_, life.scheduler_, threads)),
        life_(life) {}

  void OnTaken(const Request& request, TicketNumber ticket) override {
    const std::string_view name = request.caller().name();
    std::size_t sent = 0;
    if (name.empty() || name.front() != '#') return;
    std::from_chars(name.data() + 1, name.data() + name.size(), sent);
    life_.tickets_[{number, ticket}] = &life_.sent_[sent];
  }
  void OnDecision(const EngineState& state, const Decision& decision) override;

  std::size_t Steps() override {
    const std::uint64_t most = life_.plan_.ranks.device_steps;
    return most == 0 ? 0 : life_.random_.Below(most + 1);
  }
  std::size_t Choose(std::size_t streams) override { return life_.random_.Below(streams); }
  void BeforeWait() override { threads.Step(life_.scheduler_.running(), "the device's stream"); }
  bool AwaitOthers(const std::function<bool()>& ready) noexcept override {
    busy = true;
    const bool there =
        life_.scheduler_.AwaitQuietly(life_.scheduler_.running(), "another rank's stream", ready);
    busy = false;
    return there;
  }

  static int Helper(const Life& life, int place, int helper) {
    return life.plan_.ranks.ranks + place * kThreads + helper;
  }

  const int number;
  SimClock clock;
  SimThreads threads;
  const std::unique_ptr<FileSystem> files;
  Engine* engine = nullptr;  // while it can be asked
  Device* device = nullptr;
  bool recovered = false;
  bool busy = false;
  bool finished = false;
  bool breaks = false;  // at its next decision

 private:
  static std::vector<int> Helpers(const Life& life, int place) {
    std::vector<int> helpers;
    for (int h = 0; h < kThreads; ++h) helpers.push_back(Helper(life, place, h));
    return helpers;
  }

  Life& life_;
};

void Life::Rank::OnDecision(const EngineState& state, const Decision& decision) {
  life_.Trace(2, state.fingerprint * 8 + static_cast<std::uint64_t>(number), [&] {
    return "rank " + std::to_string(number) + " decides " + std::to_string(state.decisions) + ": " +
           (decision.round ? "round " + std::to_string(decision.round->number) + ", operation " +
                                 std::to_string(static_cast<int>(decision.round->operation))
                           : "no round");
  });
  if (breaks) throw std::runtime_error("the device breaks");
  if (!decision.round) return;
  const auto find = [&](const Ticket& ticket) -> std::optional<DurableHistory::Asker> {
    const auto found = life_.tickets_.find({Value(ticket.rank), ticket.number});
    if (found == life_.tickets_.end()) return std::nullopt;
    Sent& sent = *found->second;
    return DurableHistory::Asker{sent.op, sent.part, &sent.waited};
  };
  life_.Fail(life_.history_.OnRound(*decision.round, life_.scheduler_.now(), find));
}

Life::Life(const LifePlan& plan, SimFiles& files, bool damaged, DurableHistory& history,
           DurableClients& clients, bool print, LifeOutcome& outcome)
    : plan_(plan),
      files_(files),
      damaged_(damaged),
      history_(history),
      clients_(clients),
      outcome_(outcome),
      random_(plan.ranks.seed * 17 + 3),
      scheduler_(plan.ranks.seed * 13 + 5, plan.ranks.ranks * (1 + kThreads), *this),
      wires_(scheduler_, plan.ranks.ranks),
      fail_operation_(files.operations() + plan.fail_at) {
  scheduler_.PrintTrace(print);
  wires_.slowest_wake = plan.ranks.slowest_wake;
  for (int r = 0; r < plan.ranks.ranks; ++r) ranks_.push_back(std::make_unique<Rank>(*this, r));
  if (plan.fail_at > 0) files_.FailAt(fail_operation_, plan.fault);
}

void Life::Run() {
  history_.BeginLife(plan_.durability, plan_.MayRefuse());
  scheduler_.Run([this](int fiber) {
    const int ranks = plan_.ranks.ranks;
    if (fiber < ranks) {
      Rank& rank = *ranks_[static_cast<std::size_t>(fiber)];
      RunRank(rank);
      // mpirun ends the others.
      if (rank.breaks && !rank.finished) scheduler_.KillAll();
      return;
    }
    ranks_[static_cast<std::size_t>((fiber - ranks) / kThreads)]->threads.RunHelper(fiber);
  });
  files_.FailAt(0, SimFiles::Fault::kBroken);
  files_.SetCapacity(std::numeric_limits<std::uint64_t>::max());
  if (plan_.power_fails) {
    ++outcome_.power_failures;
    files_.Crash(random_.Bits());
  } else {
    files_.Kill();
  }
  ++outcome_.lives;
  outcome_.events += scheduler_.events();
  if (!scheduler_.AnyKilled() && !failed_to_recover_) ++outcome_.clean_ends;
  outcome_.trace_hash = outcome_.trace_hash * 31 + scheduler_.hash();
}

void Life::RunRank(Rank& me) {
  const std::unique_ptr<Device> device = plan_.ranks.apart ? test::MakeApartDevice(me) : MakeCpuDevice(1);
  const HashSecret secret(plan_.ranks.seed, static_cast<std::uint64_t>(me.number));
  SimCollective collective(wires_, me.number);
  const Exchanges exchanges = MakeSimExchanges(plan_.ranks.exchange, *device, wires_, me.number);
  Engine engine(*device, collective, exchanges, secret, plan_.ranks.engine, me.clock, &me);
  struct Unreachable {
    Rank& rank;
    ~Unreachable() {
      rank.engine = nullptr;
      rank.device = nullptr;
    }
  } const unreachable{me};
  me.device = device.get();
  DurabilityOptions durability = plan_.durability;
  durability.files = me.files.get();
  durability.threads = &me.threads;
  // Between two lives somebody sets the clock, forward or back.
  durability.unix_time = [this] {
    return 1'700'000'000 + plan_.ranks.seed * 7919 % 11 + scheduler_.now() / 1'000'000;
  };
  durability.on_failure = [this, &me](const std::string& why) {
    Trace(5, static_cast<std::uint64_t>(me.number),
          [&] { return "rank " + std::to_string(me.number) + " cannot go on: " + why; });
    if (!plan_.MayRefuse()) return Fail("the disk works, and the journal fails: " + why);
    ++outcome_.disk_failures;
    KillRank(me.number);
  };
  const Result<Recovered> recovered = engine.Recover(durability);
  OnRecovered(me, recovered);
  if (!recovered.ok()) return;
  me.engine = &engine;
  me.recovered = true;
  try {
    engine.Run();
  } catch (const std::runtime_error&) {
    if (!me.breaks) throw;
    ++outcome_.breaks;
    return;  // and the engine ends, with all its threads
  }
  me.finished = true;
  scheduler_.Await(me.number, "the end of the others", [this] {
    return std::ranges::all_of(ranks_, [](const auto& other) { return other->finished; });
  });
}

void Life::OnRecovered(Rank& rank, const Result<Recovered>& recovered) {
  Trace(6, recovered.ok() ? recovered->round : 0, [&] {
    return "rank " + std::to_string(rank.number) +
           (recovered.ok() ? " has recovered round " + std::to_string(recovered->round) + ", " +
                                 std::to_string(recovered->rounds) + " rounds from the journal"
                           : " cannot recover: " + recovered.status().message());
  });
  if (!recovered.ok()) {
    if (!DiskHasFailed() && !damaged_) return Fail("recovery fails: " + recovered.status().message());
    failed_to_recover_ = true;
    ++(DiskHasFailed() ? outcome_.failed_recoveries : outcome_.refused_damages);
    return;
  }
  if (failed_to_recover_) return Fail("a rank has recovered, and another has not");
  if (recovered_ && *recovered_ != recovered->round)
    return Fail("ranks recovered rounds " + std::to_string(*recovered_) + " and " +
                std::to_string(recovered->round));
  if (recovered_) return;
  recovered_ = recovered->round;
  ++outcome_.begun;
  outcome_.replayed += recovered->rounds;
  if (recovered->base.newest) ++outcome_.from_checkpoints;
  Lost lost;
  Fail(history_.OnRecovered(recovered->round, lost));
  outcome_.lost += lost.acknowledged;
  outcome_.torn += lost.torn;
  outcome_.longest_loss = std::max(outcome_.longest_loss, lost.span);
}

void Life::BeginToLook() {
  if (std::ranges::any_of(ranks_, [](const auto& rank) { return rank->engine == nullptr; }))
    return;  // it dies
  observed_.clear();
  const std::vector<TableInfo> tables = ranks_[0]->engine->ListTables();
  for (const TableInfo& table : tables)
    observed_.push_back(
        {.name = table.options.name.str(), .id = table.id, .options = table.options, .summary = {}});
  looks_ = tables.size();
  for (std::size_t t = 0; t < tables.size(); ++t) {
    Summarize(t, [this, t](const TableSummary& summary) {
      observed_[t].summary = summary;
      CountEvicted(t);
    });
  }
  if (tables.empty()) OnLooked();
}

void Life::Summarize(std::size_t table, std::function<void(const TableSummary&)> then) {
  SummarizeRequest request{.table = observed_[table].id, .with_digest = true, .done = {}};
  Rank& rank = Draw();
  if (rank.engine == nullptr) return;  // it dies
  request.done = [this, then = std::move(then), to = rank.number](const Result<TableSummary>& summary) {
    if (scheduler_.killed(to)) return;
    if (summary.ok()) return then(*summary);
    if (!stopped_) Fail("no summary: " + summary.status().message());
  };
  rank.engine->Submit(std::move(request));
  rank.clock.Poke();
}

// The list of evicted keys has as many as the table has evicted and let expire in this life. A sweep may come
// between two rounds.
void Life::CountEvicted(std::size_t table) {
  ListEvictedRequest request{.table = observed_[table].id, .done = {}};
  Rank& rank = Draw();
  if (rank.engine == nullptr) return;  // it dies
  request.done = [this, table, to = rank.number](const Result<EvictedPage>& page) {
    if (scheduler_.killed(to)) return;
    if (!page.ok()) {
      if (!stopped_) Fail("no evicted keys: " + page.status().message());
      return;
    }
    std::uint64_t keys = 0;
    for (const EvictedPage::OfRound& gone : page->rounds) keys += gone.keys.size();
    if (page->more) return Fail("a table has evicted more keys than a page has");
    Summarize(table, [this, table, keys](const TableSummary& after) {
      const TableSummary& before = observed_[table].summary;
      if (keys < before.evicted_rows + before.expired_rows || keys > after.evicted_rows + after.expired_rows)
        return Fail("table " + observed_[table].name + " lists " + std::to_string(keys) + " evicted keys");
      if (--looks_ == 0) OnLooked();
    });
  };
  rank.engine->Submit(std::move(request));
  rank.clock.Poke();
}

void Life::OnLooked() {
  const bool settles = phase_ == Phase::kLooking;
  const std::string wrong = history_.Compare(observed_, settles);
  if (!wrong.empty()) return Fail((settles ? "after the recovery: " : "at the end of a life: ") + wrong);
  Trace(7, looks_, [] { return "all is as it should be"; });
  if (!settles) {
    for (const ObservedTable& table : observed_) {
      outcome_.evicted += table.summary.evicted_rows;
      outcome_.expired += table.summary.expired_rows;
    }
    phase_ = Phase::kStopping;
    return RequestStop();
  }
  ++outcome_.recoveries;
  clients_.Know(observed_);
  phase_ = Phase::kAsking;
}

void Life::Happen() {
  const std::uint64_t event = scheduler_.events();
  if (plan_.ranks.kill_at > 0 && event == plan_.ranks.kill_at) KillAsPlanned();
  if (kill_all_at_ > 0 && event >= kill_all_at_) scheduler_.KillAll();
  SetRoom();
  if (scheduler_.AnyKilled() && plan_.kills_all) return;
  if (phase_ == Phase::kRecovering &&
      std::ranges::all_of(ranks_, [](const auto& rank) { return rank->recovered; })) {
    phase_ = Phase::kLooking;
    BeginToLook();
  }
  if (plan_.ranks.stop_at > 0 && event >= plan_.ranks.stop_at && phase_ == Phase::kAsking && !stopped_)
    RequestStop();
  if (phase_ == Phase::kAsking && !stopped_ && random_.OneIn(plan_.ranks.client_pause)) Act();
  if (plan_.ranks.apart && random_.OneIn(plan_.ranks.device_pause)) {
    Rank& rank = Draw();
    if (rank.device != nullptr) test::MakeProgress(*rank.device);
  }
}

bool Life::HappenWhileIdle() {
  for (const auto& rank : ranks_) {
    if (plan_.ranks.apart && rank->device != nullptr && test::MakeProgress(*rank->device)) return true;
  }
  // Idle ranks wait in no collective, so no watchdog sees that another is dead: mpirun does.
  if (scheduler_.AnyKilled() && random_.OneIn(20)) scheduler_.KillAll();
  if (phase_ != Phase::kAsking || stopped_ || !random_.OneIn(3)) return false;
  Act();
  return true;
}

void Life::SetRoom() {
  const std::uint64_t event = scheduler_.events();
  const bool is_full = plan_.full_at > 0 && recovered_ && event >= plan_.full_at && event < plan_.room_at;
  if (is_full == full_) return;
  full_ = is_full;
  files_.SetCapacity(full_ ? files_.used() + plan_.room : std::numeric_limits<std::uint64_t>::max());
}

void Life::Act() {
  if (scheduler_.AnyKilled() && random_.OneIn(2)) return;
  if (asked_ < plan_.ranks.asks) {
    ++asked_;
    return random_.OneIn(10) ? SaveCheckpoint() : Send(clients_.Next());
  }
  if (open_ > 0 || scheduler_.AnyKilled()) return;
  phase_ = Phase::kLookingAgain;
  BeginToLook();
}

void Life::Send(const DurableClients::Message& message) {
  Rank& to = Draw();
  if (to.engine == nullptr || to.busy) return;
  Sent& sent = sent_.emplace_back(Sent{.op = message.op, .part = message.part});
  Ask ask = history_.ops()[message.op].parts[message.part];
  ask.caller = "#" + std::to_string(sent_.size() - 1);
  ++open_;
  ++outcome_.requests;
  Trace(0, sent_.size(), [&] {
    return "sends " + ask.caller + " to rank " + std::to_string(to.number) + ": " + ask.Describe();
  });
  to.engine->Submit(RequestOf(ask, [this, &sent, rank = to.number](const Reply& reply) {
    if (!scheduler_.killed(rank)) OnReply(sent, reply);  // else no client hears it
  }));
  to.clock.Poke();
}

void Life::OnReply(Sent& sent, const Reply& reply) {
  const Op& op = history_.ops()[sent.op];
  Trace(1, static_cast<std::uint64_t>(reply.status.code()), [&] {
    return "answers " + std::string(ToString(reply.status.code())) + " to " + op.parts[sent.part].Describe() +
           " " + reply.status.message();
  });
  if (sent.answered) return Fail("a request is answered twice");
  sent.answered = true;
  --open_;
  Fail(history_.OnAnswer(sent.op, sent.part, reply, sent.waited));
  if (reply.status.reason() == Reason::kTableFull) {
    ++outcome_.full;
  } else if (op.IsUpdate() && sent.waited) {
    ++(reply.status.ok() ? outcome_.acknowledged : outcome_.refused);
  }
  if (reply.status.ok()) clients_.Hear(op, reply);
}

void Life::SaveCheckpoint() {
  Rank& to = Draw();
  if (to.engine == nullptr || to.busy) return;
  ++open_;
  const bool delta = random_.OneIn(2);
  Trace(3, delta ? 1 : 0, [&] { return std::string("asks for a ") + (delta ? "delta" : "base"); });
  SaveCheckpointRequest request{.delta = delta, .done = {}};
  request.done = [this, rank = to.number](const Result<SavedCheckpoint>& saved) {
    if (scheduler_.killed(rank)) return;
    --open_;
    Trace(4, saved.ok() ? saved->round : 0, [&] {
      return saved.ok() ? "has saved " + saved->id : "has not saved: " + saved.status().message();
    });
    if (saved.ok()) {
      ++outcome_.saved;
      if (saved->delta) ++outcome_.deltas;
      history_.OnSaved(saved->round);
      return;
    }
    const bool too_many =
        saved.status().message().find(" requests wait for that already") != std::string::npos;
    const bool may = too_many || stopped_ || plan_.MayRefuse() || scheduler_.AnyKilled();
    if (!may) Fail("a checkpoint fails: " + saved.status().message());
  };
  to.engine->Submit(std::move(request));
  to.clock.Poke();
}

void Life::KillRank(int rank) {
  ++outcome_.kills;
  Trace(8, static_cast<std::uint64_t>(rank), [&] { return "kills rank " + std::to_string(rank); });
  scheduler_.Kill(rank);
  for (int h = 0; h < kThreads; ++h) scheduler_.Kill(Rank::Helper(*this, rank, h));
  // mpirun notices sooner than a watchdog, or not.
  if (kill_all_at_ == 0 && random_.OneIn(2)) kill_all_at_ = scheduler_.events() + random_.Below(500);
}

void Life::KillAsPlanned() {
  if (plan_.breaks) {
    Draw().breaks = true;
    return;
  }
  if (!plan_.kills_all) return KillRank(Draw().number);
  ++outcome_.kills;
  Trace(8, 1000, [] { return "kills all ranks"; });
  scheduler_.KillAll();
}

void Life::RequestStop() {
  Rank& rank = Draw();
  if (rank.engine == nullptr) return;
  stopped_ = true;
  Trace(9, static_cast<std::uint64_t>(rank.number),
        [&] { return "asks rank " + std::to_string(rank.number) + " to stop"; });
  rank.engine->RequestStop();
  rank.clock.Poke();
}

}  // namespace

void LifeOutcome::Add(const LifeOutcome& other) {
  AddCounts(*this, other,
            {&LifeOutcome::lives,
             &LifeOutcome::events,
             &LifeOutcome::recoveries,
             &LifeOutcome::begun,
             &LifeOutcome::failed_recoveries,
             &LifeOutcome::damages,
             &LifeOutcome::journal_damages,
             &LifeOutcome::torn,
             &LifeOutcome::refused_damages,
             &LifeOutcome::replayed,
             &LifeOutcome::from_checkpoints,
             &LifeOutcome::saved,
             &LifeOutcome::deltas,
             &LifeOutcome::requests,
             &LifeOutcome::acknowledged,
             &LifeOutcome::refused,
             &LifeOutcome::lost,
             &LifeOutcome::kills,
             &LifeOutcome::breaks,
             &LifeOutcome::power_failures,
             &LifeOutcome::disk_failures,
             &LifeOutcome::clean_ends,
             &LifeOutcome::evicted,
             &LifeOutcome::expired,
             &LifeOutcome::full});
  longest_loss = std::max(longest_loss, other.longest_loss);
  trace_hash = trace_hash * 31 + other.trace_hash;
}

std::string Live(const LifePlan& plan, SimFiles& files, bool damaged, DurableHistory& history,
                 DurableClients& clients, bool print, LifeOutcome& outcome) {
  Life life(plan, files, damaged, history, clients, print, outcome);
  life.Run();
  return life.failure();
}

}  // namespace slotwise::sim
