#include "server/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/collective/bell.h"
#include "server/durability/journal_thread.h"
#include "server/engine/checkpointing.h"
#include "server/engine/evicted_log.h"
#include "server/engine/idle_wait.h"
#include "server/engine/operations/definition.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/remove_rows.h"
#include "server/engine/operations/round_context.h"
#include "server/engine/recovery.h"
#include "server/engine/round_log.h"
#include "server/engine/schedule/admission_quantum.h"
#include "server/engine/schedule/pending_requests.h"
#include "server/engine/schedule/request_queue.h"
#include "server/engine/schedule/round_scheduler.h"
#include "server/engine/table_maker.h"
#include "server/engine/tables.h"

namespace slotwise {
namespace {

std::uint64_t Milliseconds(Clock::TimePoint::duration time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

}  // namespace

class Engine::Impl {
 public:
  Impl(Device& device, Collective& collective, const Exchanges& exchanges, const HashSecret& secret,
       const EngineOptions& options, Clock& clock, EngineObserver* observer)
      : device_(device),
        collective_(collective),
        exchanges_(exchanges),
        options_(options),
        clock_(clock),
        observer_(observer),
        tables_(options.max_tables, options.instance, options.ledger),
        round_scheduler_({options.max_round_bytes, Milliseconds(options.step_timeout)}, tables_),
        request_queue_({.max_bytes = options.max_queue_bytes,
                        .beyond_bytes = options.max_queue_bytes + options.max_round_bytes,
                        .request_bytes = options.request_bytes},
                       clock),
        quantum_(device.SharesHostMemory() ? AdmissionQuantum::kTimeOnCpu : AdmissionQuantum::kTimeOnGpu,
                 options.least_quantum_bytes, options.max_round_bytes),
        idle_(clock, collective, request_queue_, options.stays_awake),
        arrays_(device, options.max_queue_bytes + 2 * options.max_round_bytes),
        maker_(device, collective, secret, options.rank_limit),
        checkpointing_(
            device, collective, tables_,
            [this](Request request) {
              Submit({&request, 1});
            },
            [this] { request_queue_.NudgeLocally(); }),
        operations_(options.more_operations),
        evicted_(options.max_evicted_bytes),
        context_(device, collective, exchanges, maker_, options.max_round_bytes, options.distribution,
                 arrays_, tables_, tickets_, log_, evicted_, checkpointing_, clock),
        says_outcomes_(observer != nullptr && observer->wants_outcomes()) {
    outcome_.lists_erased = says_outcomes_;
    if (!says_outcomes_) outcome_.most_keys = options.max_evicted_bytes / sizeof(Key);
    context_.round_outcome = &outcome_;
    context_.work.evictor().NoteIn(&outcome_);
    if (device.SharesHostMemory()) tables_.scratch().SetMost(options.max_round_bytes);
    if (Bell* const bell = collective_.bell(); bell != nullptr) {
      request_queue_.RingToo([bell] { bell->Ring(); });
    }
  }

  void Run() {
    device_.UseOnThisThread();
    std::vector<Header> headers(static_cast<std::size_t>(collective_.size()));
    bool serves_nobody = false;
    for (bool finished = false; !finished;) {
      if (!serves_nobody) busy_since_ = Now();
      const Clock::TimePoint begin = clock_.Now();
      // The next round needs the oldest stage. Requests that come until the stage is free join the round.
      stages().FinishOldest();
      const Header mine = TakeHeader();
      collective_.AllGatherBegins(std::as_bytes(std::span(&mine, 1)), UsedBytes(mine),
                                  std::as_writable_bytes(std::span(headers)));
      AnswerWhatIsDurable(headers);
      checkpointing_.OnDecision(headers[0].now_ms, log_.changed());
      const Decision decision = round_scheduler_.Decide(headers);
      Report(decision);
      ChargePartsThatWait(mine);
      AnswerWithoutRound(decision);
      if (decision.awaits_parts) TellWhatIsMissing();
      request_queue_.Favour(decision.awaited);
      if (decision.closing) request_queue_.Close();
      decision.round ? RunRound(*decision.round, CarriedBatches(headers)) : FinishRounds();
      if (decision.round) quantum_.Took(BytesOfMine(*decision.round), clock_.Now() - begin);
      if (const auto replaced = std::exchange(context_.replaced, {}); !replaced.empty())
        AnswerEarly(round_scheduler_.TablesWereReplaced(replaced));
      // A series of rounds over whole tables counts as one long round: other requests wait for all of it.
      serves_nobody = decision.round && operations_.Of(decision.round->operation).takes_long;
      checkpointing_.Advance(Milliseconds(clock_.Now() - start_), !decision.round);
      AskForSweeps();
      finished = decision.finished && log_.all_is_durable();
      const bool news = std::ranges::any_of(headers, [](const Header& h) { return h.count > 0; });
      if (news || decision.more_is_ready || decision.closing || round_scheduler_.sweeps_next()) continue;
      // A request that has come in the meantime can begin while the device finishes the round.
      if (decision.round && stages().overlap()) continue;
      AwaitWork(decision);
    }
    stages().FinishAll();
    checkpointing_.Stop(last_round_);
    busy_since_ = kIdle;
  }

  Result<Recovered> Recover(const DurabilityOptions& durability) {
    device_.UseOnThisThread();
    const ExactGrowth exact;
    Recovery recovery(durability, operations_, device_, collective_, tables_, maker_);
    Result<Recovered> recovered = recovery.Run();
    if (!recovered.ok()) return recovered;
    round_scheduler_.BeginAfter(recovered->round);
    tables_.BeginCounting();
    BeginEvictedLog(recovered->round);
    if (durability.mode == DurabilityMode::kSync) {
      if (Status started = StartJournal(recovery, durability, recovered->round); !started.ok())
        return started;
    }
    starts_ = recovery.RecordStart(options_.instance);
    // The newest checkpoint lacks the journal's rounds.
    if (recovered->rounds > 0) log_.NoteChange(recovered->round);
    checkpointing_.Use(durability, options_.instance, recovered->base, journal_.get());
    checkpoints_.emplace(*durability.files, durability.folder + "/checkpoints");
    return recovered;
  }

  // What went before this start of the server is not in the log.
  void BeginEvictedLog(std::uint64_t round) {
    tables_.ForEach([&](const Table& table) {
      if (!IsOfCandidates(table.info.options.name.view())) evicted_.Begin(table.info.id, round, true);
    });
  }

  Status StartJournal(Recovery& recovery, const DurabilityOptions& durability, std::uint64_t round) {
    auto journal = recovery.StartJournal(options_.instance, [this] { request_queue_.Nudge(); });
    if (!journal.ok()) return journal.status();
    journal_ = std::move(*journal);
    writer_.emplace(*journal_, *durability.threads);
    log_.Use(*journal_, round);
    return {};
  }

  Clock::TimePoint::duration BusyFor() const {
    const Clock::TimePoint::rep since = busy_since_;
    return since == kIdle ? Clock::TimePoint::duration(0) : Clock::TimePoint::duration(Now() - since);
  }

  EngineLoad Load() const {
    return {.rounds = rounds_,
            .queued_requests = request_queue_.requests(),
            .pending_requests = announced_,
            .queue_bytes = request_queue_.bytes(),
            .max_queue_bytes = options_.max_queue_bytes};
  }
  EngineStats Stats() const {
    EngineStats stats{.tables = tables_.Stats(),
                      .repeated_parts = repeated_parts_.load(std::memory_order_relaxed),
                      .incomplete_steps = incomplete_steps_.load(std::memory_order_relaxed),
                      .in_collectives = WaitedInCollectives(),
                      .exchanges = exchanges_.Durations(),
                      .journal = {},
                      .checkpoints = checkpointing_.Stats()};
    if (journal_ != nullptr) stats.journal = journal_->Stats();
    return stats;
  }
  std::chrono::nanoseconds WaitedInCollectives() const { return collective_.watchdog().waited(); }

  void Submit(std::span<Request> requests) {
    std::vector<Request> fitting;
    for (Request& request : requests) {
      if (const Status fits = CheckAndSize(request); !fits.ok()) {
        request.Refuse(fits);
      } else {
        fitting.push_back(std::move(request));
      }
    }
    if (fitting.empty()) return;
    if (fitting.front().caller().late()) {
      for (Request& request : fitting)
        request.RefuseWithOthers(DeadlineExceeded("the deadline passed before the request was queued"));
      return;
    }
    if (const Status added = request_queue_.Add(fitting); !added.ok()) {
      for (Request& request : fitting) request.RefuseWithOthers(added);
    }
  }

  void RequestStop() { request_queue_.Close(); }
  std::chrono::milliseconds RetryAfter() { return request_queue_.RetryAfter(); }
  const Tables& tables() const { return tables_; }
  std::uint64_t instance() const { return options_.instance; }
  std::uint64_t LostFrom(std::uint64_t generation, const Acknowledged& acknowledged) const {
    if (acknowledged.instance == 0 || acknowledged.instance == instance()) return 0;
    return starts_.LostFrom(generation, acknowledged.instance, acknowledged.step);
  }
  const std::optional<Checkpoints>& checkpoints() const { return checkpoints_; }
  ArrayPool& arrays() { return arrays_; }
  Device& device() { return device_; }

 private:
  // While this many rounds are ready, the rank proposes no further requests.
  static constexpr std::size_t kEnoughReady = 8;

  // Returns whether the engine may take the request, and fills in the size of its answer.
  Status CheckAndSize(Request& request) const {
    const BatchPart* const batch = request.batch();
    if (batch == nullptr) return {};
    if (batch->client_may_write) return InvalidArgument("the client may still write the batch's arrays");
    const auto table = tables_.Find(request.table());
    if (!table) return NotFound("the table was dropped").Because(Reason::kNoTable);
    const std::uint64_t bytes = request.BytesInRound(table->options);
    if (bytes > options_.max_round_bytes) {
      return ResourceExhausted("the batch takes " + std::to_string(bytes) +
                               " bytes in a round, more than the " +
                               std::to_string(options_.max_round_bytes) +
                               " of limits.max_round_mib: send it in smaller parts")
          .Because(Reason::kTooLarge);
    }
    request.SizeAnswer(table->options);
    return {};
  }

  // Takes requests out of the request queue and returns the header that proposes them. Proposals are served
  // in their order, so requests stay in the queue, for callers' turns, while many or large rounds are ready.
  Header TakeHeader() {
    Header header;
    header.now_ms = Milliseconds(clock_.Now() - start_);
    const auto ranks = static_cast<std::uint64_t>(collective_.size());
    if (round_scheduler_.ready_rounds() >= kEnoughReady ||
        round_scheduler_.ready_bytes() >= quantum_.bytes() * ranks) {
      header.durable = log_.durable();
      return header;
    }
    RequestQueue::Taken taken = request_queue_.Take(Header::kMost, quantum_.bytes());
    header.durable = log_.durable();  // after Take: rounds that become durable later are news again
    header.closed = taken.closed;
    for (Request& request : taken.abandoned) {
      request.RefuseWithOthers(request.caller().late()
                                   ? DeadlineExceeded("the deadline passed before the request's turn came")
                                   : Cancelled("the caller was gone before the request's turn came"));
    }
    for (Request& request : taken.requests) {
      if (IsOfReplacedTable(request)) {
        request.Refuse(
            Unavailable("a checkpoint was loaded since the call began").Because(Reason::kStateReplaced));
        continue;
      }
      Proposal& proposal = header.proposals[header.count++];
      proposal = request.proposal();
      proposal.ticket = tickets_.Add(std::move(request));
      if (observer_ != nullptr) observer_->OnTaken(tickets_.At(proposal.ticket), proposal.ticket);
    }
    if (collective_.size() > 1) CarryBatches(header, tickets_);
    return header;
  }

  // Returns whether the request is about rows that a loaded checkpoint has replaced. No load comes between
  // this check and the proposal; the scheduler refuses requests that were proposed before the load.
  bool IsOfReplacedTable(const Request& request) const {
    const Table* const table = request.generation() == 0 ? nullptr : tables_.Get(request.table());
    return table != nullptr && table->generation != request.generation();
  }

  // Returns the bytes that this rank's requests gather in a round.
  std::uint64_t BytesOfMine(const Round& round) const {
    std::uint64_t bytes = 0;
    round.ForEachTable([&](const Round& share) {
      for (const RoundPart& part : share.parts) bytes += IsMine(part.ticket) ? part.bytes : 0;
    });
    return bytes;
  }

  // Charges parts of `header` as waiting if other parts of their steps are missing.
  void ChargePartsThatWait(const Header& header) {
    for (const Proposal& proposal : std::span(header.proposals).first(header.count)) {
      if (proposal.operation_class == OperationClass::kStepPart &&
          round_scheduler_.Awaits(KeyOf(proposal.table, proposal.step))) {
        request_queue_.ChargeAsWaiting(tickets_.At(proposal.ticket));
      }
    }
  }

  // Notes when the round takes this rank's requests.
  void NoteTaken(const Round& round) {
    const CallTimes::TimePoint now = CallTimes::Clock::now();
    const std::chrono::nanoseconds waited = WaitedInCollectives();
    round.ForEachTable([&](const Round& share) {
      for (const Ticket& waiter : share.waiters) {
        if (!IsMine(waiter)) continue;
        const Caller& caller = tickets_.At(waiter.number).caller();
        if (!caller.is_server()) caller.times().NoteTaken(now, waited);
      }
    });
  }

  void RunRound(const Round& round, const CarriedBatches& carried) {
    rounds_.fetch_add(1, std::memory_order_relaxed);
    NoteTaken(round);
    NoteBusyPolling(round);
    const OperationTraits& operation = operations_.Of(round.operation);
    try {
      context_.Begin(operation, round, carried);
      operation.run(context_, round);
      context_.End(round);
      if (says_outcomes_) observer_->OnOutcome(round.number, outcome_);
      evicted_.Append(round.number, outcome_);
      outcome_.Clear();
    } catch (const std::bad_alloc&) {
      throw std::runtime_error("no memory for the arrays of a round, of which " +
                               std::to_string(round.parts.size()) +
                               " request(s) are part: limits.max_round_mib is too much beside the rows and "
                               "what else this device holds");
    }
  }

  void Report(const Decision& decision) {
    ++decisions_;
    announced_.store(tickets_.size(), std::memory_order_relaxed);
    incomplete_steps_.store(round_scheduler_.incomplete_steps(), std::memory_order_relaxed);
    if (decision.round) last_round_ = decision.round->number;
    if (observer_ == nullptr) return;
    observer_->OnDecision({decisions_, last_round_, round_scheduler_.HashState(), request_queue_.bytes()},
                          decision);
  }

  // Frees the arrays of repeated parts, and then answers the requests that need no round.
  void AnswerWithoutRound(const Decision& decision) {
    for (const Ticket& ticket : decision.repeated) {
      if (!IsMine(ticket)) continue;
      CountRepeatedPart();
      tickets_.BatchOf(ticket.number).DropArrays();
    }
    AnswerEarly(decision.answers);
  }

  void CountRepeatedPart() { repeated_parts_.fetch_add(1, std::memory_order_relaxed); }

  void AnswerEarly(std::span<const EarlyAnswer> answers) {
    for (const EarlyAnswer& answer : answers) {
      if (!IsMine(answer.ticket)) continue;
      Request request = tickets_.Take(answer.ticket.number);
      if (answer.status.ok()) {
        CountRepeatedPart();
        // Only pushes succeed without a round. The step's round may not be durable yet.
        log_.Answer(
            [part = std::make_shared<std::optional<Request>>(std::move(request)), applied = answer.applied] {
              (*part)->AnswerApplied(applied);
              part->reset();
            });
      } else {
        answer.for_another ? request.RefuseWithOthers(answer.status) : request.Refuse(answer.status);
      }
    }
  }

  // Answers the callers whose deadlines pass before their steps' other parts have come. Their parts stay.
  void TellWhatIsMissing() {
    const Clock::TimePoint now = clock_.Now();
    if (now < tell_again_) return;
    tell_again_ = now + IdleWait::kTellEvery;
    round_scheduler_.ForEachThatAwaits([this](const Ticket& ticket, const auto& what) {
      if (!IsMine(ticket)) return;
      Request& part = tickets_.At(ticket.number);
      if (part.caller().nearly_late()) part.RefuseAndKeep(DeadlineExceeded(what()));
    });
  }

  // Releases the answers of rounds that all ranks had on disk when they made these headers.
  void AnswerWhatIsDurable(std::span<const Header> headers) {
    if (log_.on()) log_.OnDurableEverywhere(std::ranges::min(headers, {}, &Header::durable).durable);
  }

  bool IsMine(const Ticket& ticket) const { return ticket.rank == collective_.rank(); }
  Stages& stages() { return context_.stages; }

  // Notes whether the round has a batch from a shared buffer of device memory.
  void NoteBusyPolling(const Round& round) {
    if (device_.SharesHostMemory() || collective_.size() > 1) return;
    round.ForEachTable([&](const Round& share) {
      for (const RoundPart& part : share.parts) {
        const BatchPart* const batch = tickets_.At(part.ticket.number).batch();
        if (batch != nullptr && batch->memory == MemoryKind::kDevice) idle_.NoteBusyPolling();
      }
    });
  }
  void FinishRounds() {
    idle_.StayAwakeUntil([this] {
      stages().FinishDone();
      return stages().idle();
    });
    if (!request_queue_.HasNews()) stages().FinishAll();
  }

  void AwaitWork(const Decision& decision) {
    idle_.StayAwakeUntil([] { return false; });
    busy_since_ = kIdle;
    IdleWait::Beside beside{.advance = [this] {
      AskForSweeps();
      return PauseOf(checkpointing_.Advance(Milliseconds(clock_.Now() - start_), true));
    }};
    if (decision.awaits_parts) {
      beside.due = std::chrono::milliseconds(decision.due_in_ms);
      beside.tell = [this] { TellWhatIsMissing(); };
    }
    idle_.Await(beside);
    busy_since_ = Now();
  }

  // On rank 0, asks for sweeps of the tables that are due by its clock.
  void AskForSweeps() {
    if (Value(collective_.rank()) != 0) return;
    const std::uint64_t now = clock_.UnixSeconds();
    if (now == std::exchange(looked_for_sweeps_, now)) return;
    tables_.ForEach([&](const Table& table) {
      if (!table.expiry.IsDueByTime(table.info.options, now) || !asked_to_sweep_.insert(table.info.id).second)
        return;
      const auto forget = [this, id = table.info.id](const auto&) { asked_to_sweep_.erase(id); };
      Request sweep = RemoveRequest{.table = table.info.id, .done = forget};
      Submit({&sweep, 1});
    });
  }

  // Returns after what time a checkpoint under way goes on if the rank is idle.
  static std::optional<std::chrono::microseconds> PauseOf(Checkpointing::Next next) {
    if (next == Checkpointing::Next::kNothing) return std::nullopt;
    return next == Checkpointing::Next::kSoon ? IdleWait::kSoon : IdleWait::kTick;
  }

  Clock::TimePoint::rep Now() const { return clock_.Now().time_since_epoch().count(); }

  Device& device_;
  Collective& collective_;
  const Exchanges& exchanges_;
  const EngineOptions options_;
  Clock& clock_;
  EngineObserver* const observer_;
  Tables tables_;
  RoundScheduler round_scheduler_;
  RequestQueue request_queue_;
  AdmissionQuantum quantum_;
  IdleWait idle_;
  PendingRequests tickets_;
  ArrayPool arrays_;
  TableMaker maker_;
  std::unique_ptr<Journal> journal_;  // null: there is no journal
  std::optional<JournalThread> writer_;
  RoundLog log_;
  Checkpointing checkpointing_;
  std::optional<Checkpoints> checkpoints_;
  Starts starts_;
  const OperationTable operations_;
  EvictedLog evicted_;
  RoundContext context_;
  const bool says_outcomes_;
  RoundOutcome outcome_;  // of the current round
  const Clock::TimePoint start_ = clock_.Now();
  Clock::TimePoint tell_again_ = {};
  std::uint64_t looked_for_sweeps_ = 0;  // when: in seconds since 1970
  std::set<TableId> asked_to_sweep_;     // tables of which a sweep was asked for
  std::uint64_t decisions_ = 0;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::atomic<std::uint64_t> announced_ = 0;
  std::atomic<std::uint64_t> repeated_parts_ = 0;
  std::atomic<std::uint64_t> incomplete_steps_ = 0;
  std::uint64_t last_round_ = 0;
  static constexpr Clock::TimePoint::rep kIdle = std::numeric_limits<Clock::TimePoint::rep>::min();
  std::atomic<Clock::TimePoint::rep> busy_since_ = kIdle;
};

Engine::Engine(Device& device, Collective& collective, const Exchanges& exchanges, const HashSecret& secret,
               const EngineOptions& options, Clock& clock, EngineObserver* observer)
    : impl_(std::make_unique<Impl>(device, collective, exchanges, secret, options, clock, observer)) {}
Engine::~Engine() = default;

Result<Recovered> Engine::Recover(const DurabilityOptions& durability) { return impl_->Recover(durability); }
void Engine::Run() { impl_->Run(); }
void Engine::RequestStop() { impl_->RequestStop(); }
void Engine::Submit(Request request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(std::vector<Request> requests) { impl_->Submit(requests); }
Clock::TimePoint::duration Engine::BusyFor() const { return impl_->BusyFor(); }
EngineLoad Engine::Load() const { return impl_->Load(); }
EngineStats Engine::Stats() const { return impl_->Stats(); }
std::chrono::nanoseconds Engine::WaitedInCollectives() const { return impl_->WaitedInCollectives(); }
std::chrono::milliseconds Engine::RetryAfter() { return impl_->RetryAfter(); }
ArrayPool& Engine::arrays() { return impl_->arrays(); }
Device& Engine::device() { return impl_->device(); }
std::uint64_t Engine::instance() const { return impl_->instance(); }
std::uint64_t Engine::LostFrom(std::uint64_t generation, const Acknowledged& acknowledged) const {
  return impl_->LostFrom(generation, acknowledged);
}
std::uint64_t Engine::epoch() const { return impl_->tables().epoch(); }
std::optional<TableInfo> Engine::FindTable(std::string_view name) const { return impl_->tables().Find(name); }
std::vector<TableInfo> Engine::ListTables() const { return impl_->tables().All(); }
std::optional<Checkpoints> Engine::checkpoints() const { return impl_->checkpoints(); }

}  // namespace slotwise
