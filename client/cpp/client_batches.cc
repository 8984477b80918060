// Lookups and pushes: the client checks batches, cuts them, sends their parts, and answers when every part is
// answered.
#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/batch_exchange.h"
#include "client/cpp/batches.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/distinct_keys.h"
#include "client/cpp/gpu_exchange.h"

namespace slotwise {

using client::Batches;
using client::Call;
using client::Piece;
using client::Request;
using client::TableBatch;
using client::TableBatches;

// Runs a lookup or a push: it gets the tables' options, checks and cuts the batches, sends them, and forgets
// the options after an error. Callbacks come on the client's threads, or before a function returns.
class Client::BatchCall {
 public:
  // Each calls `done` when all parts are answered. `impl` outlives the call.
  static void Lookup(Impl& impl, const Call& call, Batches lookups, LookupMode mode, Done done);
  // `named`: nothing for the next step of the client's own session.
  static void Push(Impl& impl, const Call& call, Batches pushes, const std::optional<Step>& named,
                   PushDone done);

 private:
  // Called with the batches checked. Cuts them, and returns the requests.
  using MakeRequests = std::function<Result<std::vector<Request>>()>;

  static void Start(Impl& impl, const Call& call, const std::shared_ptr<Batches>& batches,
                    MakeRequests make_requests, Done done);
  // `parts`: that a step has; 0 if it does not matter.
  static Status CutFor(Impl& impl, const Call& call, Batches& batches, std::uint32_t parts);
  static void PushAs(Impl& impl, const Call& call, const std::shared_ptr<Batches>& batches, const Step& step,
                     const std::shared_ptr<std::atomic<bool>>& sent_again, PushDone done);
};

namespace {

// Returns the call's requests.
std::vector<Request> RequestsFor(const std::shared_ptr<Batches>& batches, DataType type,
                                 const std::shared_ptr<client::BatchMessages>& messages) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < batches->requests.size(); ++i) {
    if (batches->gpu) {
      requests.push_back({.exchange = std::make_shared<client::GpuExchange>(batches, i, type, messages),
                          .gpu = batches->gpu->gpu});
    } else {
      requests.push_back({.exchange = std::make_shared<client::BatchExchange>(batches, i, type, messages)});
    }
  }
  return requests;
}

std::vector<std::string> NamesOf(const TableBatches& tables) {
  std::vector<std::string> names;
  for (const TableBatch& table : tables) names.push_back(table.table);
  return names;
}

// Returns a callback that keeps its answer for a future.
template <class Answer>
auto Promise() {
  auto promise = std::make_shared<std::promise<Answer>>();
  auto future = promise->get_future();
  return std::pair([promise](Answer answer) { promise->set_value(std::move(answer)); }, std::move(future));
}

// Returns batches of one request without their tables, or says why the GPU cannot be had.
Result<Batches> OnGpu(const Gpu& gpu) {
  auto access = client::DeviceAccess::Find(gpu.name);
  if (!access.ok()) return access.status();
  Batches batches;
  batches.gpu = std::make_shared<client::GpuBatches>();
  batches.gpu->gpu = gpu.name;
  batches.gpu->of = {.access = std::move(*access), .stream = gpu.stream};
  return batches;
}

// Adds a batch whose arrays nobody looks at here: of wide offsets, their number counts.
template <class Given>
void AddOnGpu(const Given& given, Batches& batches) {
  BatchView view = given.batch;
  const bool wide = !given.wide_offsets.empty();
  if (wide) {
    const auto* const first = reinterpret_cast<const std::uint32_t*>(given.wide_offsets.data());
    view.offsets = {first, given.wide_offsets.size()};
  }
  batches.tables.push_back({.table = std::string(given.table), .view = view});
  batches.gpu->wide.push_back(wide);
}

}  // namespace

void Client::BatchCall::Start(Impl& impl, const Call& call, const std::shared_ptr<Batches>& batches,
                              MakeRequests make_requests, Done done) {
  const auto conclude = [&impl, call, batches, done = std::move(done)](const Status& status) {
    // Whoever gave up has not heard that a table is another one.
    const bool gave_up =
        status.code() == StatusCode::kCancelled || status.code() == StatusCode::kDeadlineExceeded;
    if (!status.ok() && !gave_up) {
      for (const TableBatch& table : batches->tables) impl.Forget(table.table);
    }
    if (status.code() == StatusCode::kDataLoss) return impl.AddOtherLosses(call, status, done);
    done(status);
  };
  // Whoever has an answer of a new start of the server may rely on the client to know its ranks.
  const auto finish = [&impl, call, batches, conclude](const Status& status) {
    const auto other = std::ranges::find_if(batches->answers, [&](const client::Answer& answer) {
      return answer.incarnation != 0 && answer.incarnation != batches->known_start;
    });
    if (other == batches->answers.end()) return conclude(status);
    impl.LearnOfNewStart(call, *other, [conclude, status] { conclude(status); });
  };
  batches->known_start = impl.incarnation();
  if (batches->tables.empty()) return finish({});
  for (TableBatch& table : batches->tables) table.before = impl.states().Acknowledged(table.table);
  impl.WithTables(call, NamesOf(batches->tables),
                  [&impl, call, batches, finish,
                   make_requests = std::move(make_requests)](const Result<Impl::Tables>& options) {
                    if (!options.ok()) return finish(options.status());
                    if (Status status = client::Check(*batches, *options); !status.ok()) {
                      return finish(status);
                    }
                    auto requests = make_requests();
                    if (!requests.ok()) return finish(requests.status());
                    impl.Address(*requests, batches->pushes);
                    // The batches outlive the requests, and keep what is known of each one's answer.
                    batches->answers.assign(requests->size(), {});
                    for (std::size_t i = 0; i < requests->size(); ++i) {
                      (*requests)[i].answered_by =
                          std::shared_ptr<std::string>(batches, &batches->answers[i].address);
                    }
                    impl.Send(call, std::move(*requests), finish);
                  });
}

Status Client::BatchCall::CutFor(Impl& impl, const Call& call, Batches& batches, std::uint32_t parts) {
  if (batches.gpu) {
    client::PutTogether(batches, std::max<std::uint32_t>(parts, 1));
    return {};
  }
  const client::Channels& channels = impl.channels();
  return client::Cut(batches, {.type = call.data_type,
                               .ranks = channels.ranks(),
                               .channels = channels.channels_per_rank(),
                               .parts = parts,
                               .limits = impl.limits()});
}

void Client::BatchCall::Lookup(Impl& impl, const Call& call, Batches lookups, LookupMode mode, Done done) {
  const auto batches = std::make_shared<Batches>(std::move(lookups));
  const auto messages = std::make_shared<client::LookupMessages>(batches, mode, call.data_type,
                                                                 impl.message_memory(), impl.states());
  const auto make = [&impl, call, batches, messages]() -> Result<std::vector<Request>> {
    if (impl.options().send_each_key_once && !batches->gpu) client::SendEachKeyOnce(*batches);
    if (Status status = CutFor(impl, call, *batches, 0); !status.ok()) return status;
    return RequestsFor(batches, call.data_type, messages);
  };
  Start(
      impl, call, batches, make,
      [&impl, batches, messages, mode, done = std::move(done)](const Status& status) {
        if (status.ok()) client::CopyRepeatedRows(*batches);
        for (std::size_t i = 0; status.ok() && i < batches->tables.size(); ++i) {
          impl.states().NoteLookup(batches->tables[i].table, messages->states().Of(i));
        }
        const bool may_have_inserted =
            mode == LookupMode::kTrain && status.code() == StatusCode::kResourceExhausted;
        done(may_have_inserted ? client::WithAnsweredParts(status, *batches, messages->answered()) : status);
      });
}

void Client::BatchCall::Push(Impl& impl, const Call& call, Batches pushes, const std::optional<Step>& named,
                             PushDone done) {
  const auto batches = std::make_shared<Batches>(std::move(pushes));
  for (std::size_t i = 0; i < batches->tables.size(); ++i) {
    TableBatch& table = batches->tables[i];
    if (i < call.looked_up.size())
      table.looked_up = {call.looked_up[i].lineage, call.looked_up[i].table_step};
    if (i < call.learning_rates.size()) table.learning_rate = call.learning_rates[i];
    if (table.looked_up.lineage == 0) table.looked_up = impl.states().LookedUp(table.table);
  }
  const Step step = named ? *named : impl.session().Next();
  const auto sent_again = std::make_shared<std::atomic<bool>>(false);
  const auto answer = [&impl, call, batches, is_named = named.has_value(), step, sent_again,
                       done = std::move(done)](const Result<std::vector<std::uint64_t>>& steps) {
    const bool is_own = !is_named || step.session == impl.session().id();
    if (steps.ok() || !is_own || steps.status().reason() != Reason::kSessionForgotten) return done(steps);
    impl.RenewSession(call, step.session, [=, &impl, refused = steps.status()](const Status& renewed) {
      // A part that was refused at its only try has never been taken in, so the step was not applied.
      if (is_named || *sent_again || !renewed.ok()) return done(refused);
      PushAs(impl, call, batches, impl.session().Next(), std::make_shared<std::atomic<bool>>(false), done);
    });
  };
  PushAs(impl, call, batches, step, sent_again, answer);
}

void Client::BatchCall::PushAs(Impl& impl, const Call& call, const std::shared_ptr<Batches>& batches,
                               const Step& step, const std::shared_ptr<std::atomic<bool>>& sent_again,
                               PushDone done) {
  if (Status status = Validate(step); !status.ok()) return done(status);
  const auto messages =
      std::make_shared<std::shared_ptr<client::PushMessages>>();  // once the batches are cut
  const auto make = [&impl, call, batches, step, sent_again, messages]() -> Result<std::vector<Request>> {
    if (Status status = CutFor(impl, call, *batches, step.parts); !status.ok()) return status;
    const std::uint64_t own_parts = batches->requests.back().back().part + 1;  // as of every table
    const std::uint64_t parts = own_parts * step.trainers;
    const std::uint64_t tables = batches->tables.size();
    if (parts * tables > StepId::kMaxParts) {
      return ResourceExhausted("the batch would be cut into " + std::to_string(parts * tables) +
                               " parts: a step has at most " + std::to_string(StepId::kMaxParts))
          .Because(Reason::kTooLarge);
    }
    const auto step_of = [step, own_parts, parts, tables](const Piece& piece) {
      return StepId{.session = step.session,
                    .number = step.number,
                    .part = static_cast<std::uint32_t>(step.trainer * own_parts + piece.part),
                    .parts = static_cast<std::uint32_t>(parts),
                    .epoch = step.epoch,
                    .place = static_cast<std::uint32_t>(piece.table),
                    .tables = static_cast<std::uint32_t>(tables)};
    };
    *messages = std::make_shared<client::PushMessages>(batches, step_of, call.data_type,
                                                       impl.message_memory(), impl.states());
    auto requests = RequestsFor(batches, call.data_type, *messages);
    for (Request& request : requests) request.sent_again = sent_again;
    return requests;
  };
  Start(impl, call, batches, make, [messages, done = std::move(done)](const Status& status) {
    if (!status.ok()) return done(status);
    done(*messages ? (*messages)->steps() : std::vector<std::uint64_t>());
  });
}

void Client::LookupAsync(std::span<const TableLookup> lookups, LookupMode mode, Done done,
                         const CallOptions& call) {
  Batches batches;
  for (const TableLookup& lookup : lookups) {
    batches.tables.push_back({.table = std::string(lookup.table), .view = lookup.batch, .out = lookup.out});
  }
  BatchCall::Lookup(*impl_, impl_->Begin(call), std::move(batches), mode, std::move(done));
}

void Client::PushAsync(std::span<const TablePush> pushes, const std::optional<Step>& step, PushDone done,
                       const CallOptions& call) {
  Batches batches{.tables = {}, .pushes = true};
  for (const TablePush& push : pushes) {
    batches.tables.push_back(
        {.table = std::string(push.table), .view = push.batch, .gradients = push.gradients});
  }
  BatchCall::Push(*impl_, impl_->Begin(call), std::move(batches), step, std::move(done));
}

void Client::LookupOnGpuAsync(std::span<const GpuLookup> lookups, LookupMode mode, const Gpu& gpu,
                              GpuRowsDone done, const CallOptions& call,
                              const std::shared_ptr<GpuPushUnderWay>& behind) {
  auto batches = OnGpu(gpu);
  if (!batches.ok()) return done(batches.status());
  batches->gpu->of.behind = std::static_pointer_cast<client::Turn>(behind);
  for (const GpuLookup& lookup : lookups) AddOnGpu(lookup, *batches);
  BatchCall::Lookup(*impl_, impl_->Begin(call), *batches, mode,
                    [gpu = batches->gpu, done = std::move(done)](const Status& status) {
                      gpu->of.carried.reset();
                      if (!status.ok()) return done(status);
                      done(std::move(gpu->rows));
                    });
}

std::shared_ptr<GpuPushUnderWay> Client::PushOnGpuAsync(std::span<const GpuPush> pushes,
                                                        const std::optional<Step>& step, const Gpu& gpu,
                                                        PushDone done, const CallOptions& call) {
  const auto turn = std::make_shared<client::Turn>();
  auto batches = OnGpu(gpu);
  if (!batches.ok()) {
    turn->End(false);
    done(batches.status());
    return turn;
  }
  batches->pushes = true;
  batches->gpu->of.turn = turn;
  for (const GpuPush& push : pushes) {
    AddOnGpu(push, *batches);
    batches->gpu->gradients.push_back(push.gradients);
  }
  BatchCall::Push(
      *impl_, impl_->Begin(call), *batches, step,
      [gpu = batches->gpu, turn, done = std::move(done)](const Result<std::vector<std::uint64_t>>& steps) {
        gpu->of.carried.reset();
        turn->End(steps.ok());
        done(steps);
      });
  return turn;
}

LookedUpState Client::LookedUp(std::string_view table) const {
  const client::TableState state = impl_->states().LookedUp(table);
  return {.lineage = state.lineage, .table_step = state.step};
}

std::vector<std::string> Client::Gpus() const {
  std::vector<std::string> here;
  for (const std::string& gpu : impl_->channels().now()->gpus()) {
    if (client::DeviceAccess::Find(gpu).ok()) here.push_back(gpu);
  }
  return here;
}

Status Client::Lookup(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out,
                      const CallOptions& call) {
  const TableLookup one{table, batch, out};
  return Lookup(std::span(&one, 1), mode, call);
}

Status Client::Lookup(std::span<const TableLookup> lookups, LookupMode mode, const CallOptions& call) {
  auto [done, answer] = Promise<Status>();
  LookupAsync(lookups, mode, done, call);
  return answer.get();
}

Result<std::uint64_t> Client::Push(std::string_view table, const BatchView& batch,
                                   std::span<const float> gradients, const std::optional<Step>& step,
                                   const CallOptions& call) {
  const TablePush one{table, batch, gradients};
  const auto steps = Push(std::span(&one, 1), step, call);
  if (!steps.ok()) return steps.status();
  return steps->front();
}

Result<std::vector<std::uint64_t>> Client::Push(std::span<const TablePush> pushes,
                                                const std::optional<Step>& step, const CallOptions& call) {
  auto [done, answer] = Promise<Result<std::vector<std::uint64_t>>>();
  PushAsync(pushes, step, done, call);
  return answer.get();
}

}  // namespace slotwise
