#include "server/engine/engine.h"

#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/agenda.h"
#include "server/engine/inbox.h"
#include "server/engine/operations.h"
#include "server/engine/tables.h"

namespace slotwise {
namespace {

std::uint64_t Milliseconds(Clock::TimePoint::duration time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

}  // namespace

class Engine::Impl {
 public:
  Impl(Device& device, Collective& collective, const Exchanges& exchanges, const EngineOptions& options,
       Clock& clock, EngineObserver* observer)
      : device_(device),
        collective_(collective),
        options_(options),
        clock_(clock),
        observer_(observer),
        agenda_({options.max_round_bytes, Milliseconds(options.step_timeout)}),
        inbox_(options.max_inbox_bytes, clock),
        arrays_(device, options.max_inbox_bytes + 2 * options.max_round_bytes),
        operations_(device, collective, exchanges, options.travel, arrays_, agenda_, tables_) {}

  void Run() {
    device_.UseOnThisThread();
    std::vector<Header> headers(static_cast<std::size_t>(collective_.size()));
    while (!agenda_.Finished()) {
      // A round would have to wait for room anyway: what comes until then can share it.
      operations_.MakeRoom();
      const Header mine = Announce();
      collective_.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(headers)));
      agenda_.Absorb(headers);
      DropArraysOfRepeated();
      Answer();
      inbox_.Favour(agenda_.FirstIncompleteStep());
      if (agenda_.Closing()) inbox_.Close();
      const std::optional<Round> round = agenda_.Next();
      if (round) {
        RunRound(*round);
        Answer();
      } else {
        operations_.Finish();
      }
      const bool news = std::ranges::any_of(headers, [](const Header& h) { return h.count > 0; });
      if (news || agenda_.HasReady() || agenda_.Closing()) continue;
      // What has come meanwhile can begin beside what the device has not finished.
      if (round && operations_.RoundsOverlap()) continue;
      AwaitWork();
    }
    operations_.Finish();
  }

  template <class Kind>
  void Submit(std::span<Kind> requests) {
    std::vector<Request> held;
    for (Kind& request : requests) {
      if (const Status fits = CheckFits(request); !fits.ok()) {
        request.done(fits);
      } else {
        held.emplace_back(std::move(request));
      }
    }
    if (held.empty()) return;
    if (const Status added = inbox_.Add(held); !added.ok()) {
      for (Request& request : held) Refuse(request, added);
    }
  }

  void RequestStop() { inbox_.Close(); }
  const Tables& tables() const { return tables_; }
  ArrayPool& arrays() { return arrays_; }

 private:
  // How often an engine that only waits for missing parts of steps looks at the clock.
  static constexpr std::chrono::milliseconds kTick{20};
  // How often an idle rank looks whether another woke it: often at first, then seldom, to leave the core alone.
  static constexpr std::chrono::microseconds kFirstPause{50};
  static constexpr std::chrono::microseconds kLastPause{2000};
  static constexpr std::chrono::milliseconds kRecently{20};

  // What a request's round gathers.
  static std::uint64_t BytesOf(const BatchPart& batch, std::uint32_t slots, std::uint32_t dim) {
    return RoundBytes(batch.samples, batch.keys.size(), slots, dim, batch.weights.size() > 0);
  }
  static std::uint64_t GatheredBytes(const ImportRequest& request, const TableOptions& table) {
    const std::uint32_t state = StateFloats(table.optimizer.kind, table.dim);
    return BytesOf(request.batch, 1, table.dim + (request.with_state ? state : 0));
  }
  static std::uint64_t GatheredBytes(const EraseRequest& request, const TableOptions&) {
    return BytesOf(request.batch, 1, 0);
  }
  template <class Kind>
  static std::uint64_t GatheredBytes(const Kind& request, const TableOptions& table) {
    return BytesOf(request.batch, table.slots, table.dim);
  }

  template <class Kind>
  Status CheckFits(const Kind& request) const {
    if constexpr (requires { request.batch; }) {
      const auto table = tables_.Find(request.table);
      if (!table) return NotFound("the table was dropped");
      const std::uint64_t bytes = GatheredBytes(request, table->options);
      if (bytes > options_.max_round_bytes) {
        return ResourceExhausted("the batch gathers " + std::to_string(bytes) + " bytes, more than the " +
                                 std::to_string(options_.max_round_bytes) +
                                 " of a round: send it in smaller parts");
      }
    }
    return {};
  }

  Header Announce() {
    Header header;
    header.now_ms = Milliseconds(clock_.Now() - start_);
    Inbox::Taken taken = inbox_.Take(Header::kMost);
    header.closed = taken.closed;
    for (Request& request : taken.requests) {
      Announcement& announcement = header.announcements[header.count++];
      announcement = Describe(request);
      announcement.ticket = next_ticket_++;
      operations_.Hold(announcement.ticket, std::move(request));
    }
    return header;
  }

  void RunRound(const Round& round) {
    try {
      operations_.Run(round);
    } catch (const std::bad_alloc&) {
      throw std::runtime_error("no memory for the arrays of a round, of which " +
                               std::to_string(round.parts.size()) +
                               " request(s) are part: limits.max_round_mib is too much beside the rows and "
                               "what else this device holds");
    }
  }

  void DropArraysOfRepeated() {
    for (const Ticket& ticket : agenda_.TakeRepeated()) {
      if (ticket.rank == collective_.rank()) operations_.DropArraysOf(ticket.number);
    }
  }

  void Answer() {
    for (const slotwise::Answer& answer : agenda_.TakeAnswers()) {
      if (answer.ticket.rank == collective_.rank()) operations_.Answer(answer);
    }
    inbox_.Release(operations_.TakeReleasedBytes());
  }

  // All ranks come here after the same round. The first to have work wakes the others.
  void AwaitWork() {
    ++waits_;
    const Clock::TimePoint begin = clock_.Now();
    for (;;) {
      const Clock::TimePoint::duration waited = clock_.Now() - begin;
      const bool alone = collective_.size() == 1;
      const auto pause = alone                ? std::chrono::microseconds(kTick)
                         : waited < kRecently ? kFirstPause
                                              : kLastPause;
      const bool tick = agenda_.HasIncompleteSteps() && waited >= kTick;
      if (inbox_.AwaitNews(tick ? std::chrono::microseconds(0) : pause) || tick)
        return collective_.Wake(waits_);
      if (collective_.PollWake(waits_)) return;
    }
  }

  Device& device_;
  Collective& collective_;
  const EngineOptions options_;
  Clock& clock_;
  [[maybe_unused]] EngineObserver* const observer_;
  Tables tables_;
  Agenda agenda_;
  Inbox inbox_;
  ArrayPool arrays_;
  Operations operations_;
  const Clock::TimePoint start_ = clock_.Now();
  TicketNumber next_ticket_ = 1;
  std::uint64_t waits_ = 0;
};

Engine::Engine(Device& device, Collective& collective, const Exchanges& exchanges,
               const EngineOptions& options, Clock& clock, EngineObserver* observer)
    : impl_(std::make_unique<Impl>(device, collective, exchanges, options, clock, observer)) {}
Engine::~Engine() = default;

void Engine::Run() { impl_->Run(); }
void Engine::RequestStop() { impl_->RequestStop(); }
void Engine::Submit(LookupRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(PushRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(CreateTableRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(DropTableRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(SummarizeRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(SetLearningRateRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(ImportRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(EraseRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(ListKeysRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(ReadRowsRequest request) { impl_->Submit(std::span(&request, 1)); }
void Engine::Submit(std::vector<LookupRequest> requests) { impl_->Submit(std::span(requests)); }
void Engine::Submit(std::vector<PushRequest> requests) { impl_->Submit(std::span(requests)); }
ArrayPool& Engine::arrays() { return impl_->arrays(); }
std::optional<TableInfo> Engine::FindTable(std::string_view name) const { return impl_->tables().Find(name); }
std::vector<TableInfo> Engine::ListTables() const { return impl_->tables().All(); }

}  // namespace slotwise
