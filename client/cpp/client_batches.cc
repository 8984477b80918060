// Implements lookups and pushes: the client checks batches, cuts them, sends the parts, and ends the call
// when every part is answered.
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
#include "client/cpp/messages.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {

using client::Batches;
using client::Call;
using client::Piece;
using client::Request;
using client::TableBatch;
using client::TableBatches;

namespace {

// Returns a callback that fulfils a promise, and the future.
template <class Answer>
auto Promise() {
  auto promise = std::make_shared<std::promise<Answer>>();
  auto future = promise->get_future();
  return std::pair([promise](Answer answer) { promise->set_value(std::move(answer)); }, std::move(future));
}

// Returns Batches for one request, without tables. Fails if this process cannot use the GPU.
Result<Batches> OnGpu(const Gpu& gpu) {
  auto access = client::DeviceAccess::Find(gpu.name);
  if (!access.ok()) return access.status();
  Batches batches;
  batches.gpu = std::make_shared<client::GpuBatches>();
  batches.gpu->gpu = gpu.name;
  batches.gpu->of = {.access = std::move(*access), .stream = gpu.stream};
  return batches;
}

// Adds a batch whose arrays are not read here. Wide offsets only give the number of offsets.
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

// A BatchCall is a lookup or a push that is under way. Its methods stand in the order of time: each calls the
// next one, or has the client call the next one later and keep the BatchCall until then. Callbacks come on
// the client's threads, or before a function returns.
class Client::BatchCall : public std::enable_shared_from_this<BatchCall> {
 public:
  class Lookup;
  class Push;

  // `impl` outlives the call.
  BatchCall(Impl& impl, const Call& call, Batches batches)
      : impl_(impl), call_(call), batches_(std::make_shared<Batches>(std::move(batches))) {}
  virtual ~BatchCall() = default;

  // Gets the tables' options.
  void Begin() {
    batches_->known_start = impl_.instance();
    if (batches_->tables.empty()) return Answered({});
    for (TableBatch& table : batches_->tables) table.before = impl_.states().Acknowledged(table.table);
    GetTables();
  }

 private:
  // Asks the server for the options of tables that the client does not know, of one after the other.
  void GetTables() {
    std::vector<TableOptions> options;
    for (const TableBatch& table : batches_->tables) {
      const auto known = impl_.Known(table.table);
      if (!known) return Describe(table.table);
      options.push_back(*known);
    }
    GotTables(options);
  }

  void Describe(const std::string& table) {
    v1::DescribeTableRequest request;
    request.set_table(table);
    auto read = [this, self = shared_from_this(), table](const grpc::ByteBuffer& bytes) -> Status {
      v1::DescribeTableReply reply;
      if (Status status = client::Deserialize(bytes, reply); !status.ok()) return status;
      const auto options = client::DescribedOptions(reply, table);
      if (options.ok()) impl_.Remember(*options);
      return options.status();
    };
    impl_.runs().Send(call_, {client::ToAsk("DescribeTable", request, std::move(read))},
                      [self = shared_from_this()](const Status& status) {
                        status.ok() ? self->GetTables() : self->Answered(status);
                      });
  }

  // Checks the batches, has them cut, and sends them.
  void GotTables(const std::vector<TableOptions>& options) {
    if (Status status = client::Check(*batches_, options); !status.ok()) return Answered(status);
    const auto messages = Cut();
    if (!messages.ok()) return Answered(messages.status());
    const DataType type = call_.data_type;
    const auto self = shared_from_this();  // the requests record their answers in it
    batches_->answers.assign(batches_->requests.size(), {});
    std::vector<Request> requests(batches_->requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (batches_->gpu) {
        requests[i].exchange = std::make_shared<client::GpuExchange>(batches_, i, type, *messages);
        requests[i].gpu = batches_->gpu->gpu;
      } else {
        requests[i].exchange = std::make_shared<client::BatchExchange>(batches_, i, type, *messages);
      }
      requests[i].sent_again = std::shared_ptr<std::atomic<bool>>(self, &sent_again_);
      requests[i].answered_by = std::shared_ptr<std::string>(self, &batches_->answers[i].address);
    }
    Address(requests);
    impl_.runs().Send(call_, std::move(requests), [self](const Status& status) { self->Answered(status); });
  }

  // Chooses a rank and a channel for each request: neighbouring parts go to the same rank, in rank order. If
  // ranks cannot have equally many parts, calls take turns with which ranks have more. Pushes and other calls
  // count turns apart: a trainer's lookups and pushes alternate, and with one count each kind would always
  // find the same rank.
  void Address(std::vector<Request>& requests) {
    const std::size_t ranks = impl_.channels().ranks();
    const bool takes_turns = requests.size() == 1 || requests.size() % ranks != 0;
    const std::size_t turn = takes_turns ? impl_.TakeTurn(batches_->pushes) : 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].rank = (i * ranks + turn % ranks) / requests.size();
      requests[i].channel = i + turn / ranks;
    }
  }

  // Cuts checked batches, and returns the object that writes and reads their messages.
  virtual Result<std::shared_ptr<client::BatchMessages>> Cut() = 0;

  // Called when every part is answered, or the call has failed.
  void Answered(const Status& status) {
    const auto other = std::ranges::find_if(batches_->answers, [this](const client::Answer& answer) {
      return answer.instance != 0 && answer.instance != batches_->known_start;
    });
    if (other == batches_->answers.end()) return Conclude(status);
    // After an answer from a new server instance, the caller may rely on the client knowing its ranks.
    impl_.LearnOfNewStart(call_, *other, [self = shared_from_this(), status] { self->Conclude(status); });
  }

  void Conclude(const Status& status) {
    // A caller that gave up has not heard that the table was made again.
    const bool gave_up =
        status.code() == StatusCode::kCancelled || status.code() == StatusCode::kDeadlineExceeded;
    if (!status.ok() && !gave_up) {
      for (const TableBatch& table : batches_->tables) impl_.Forget(table.table);
    }
    if (status.code() != StatusCode::kDataLoss) return End(status);
    impl_.AddOtherLosses(call_, status, [self = shared_from_this()](const Status& all) { self->End(all); });
  }

  // Ends the caller's call.
  virtual void End(const Status& status) = 0;

 protected:
  // Cuts the batches into requests, for each Cut(). `parts`: the number of parts of a step; 0: any.
  Status CutInto(std::uint32_t parts) {
    if (batches_->gpu) {
      client::PutTogether(*batches_, std::max<std::uint32_t>(parts, 1));
      return {};
    }
    const client::Channels& channels = impl_.channels();
    return client::Cut(*batches_, {.type = call_.data_type,
                                   .ranks = channels.ranks(),
                                   .channels = channels.channels_per_rank(),
                                   .parts = parts,
                                   .limits = impl_.limits()});
  }

  Impl& impl_;
  const Call call_;
  const std::shared_ptr<Batches> batches_;
  std::atomic<bool> sent_again_ = false;  // some request was
};

class Client::BatchCall::Lookup final : public BatchCall {
 public:
  // `done` is called when all parts are answered.
  Lookup(Impl& impl, const Call& call, Batches lookups, LookupMode mode, Done done)
      : BatchCall(impl, call, std::move(lookups)),
        mode_(mode),
        done_(std::move(done)),
        messages_(std::make_shared<client::LookupMessages>(batches_, mode, call.data_type,
                                                           impl.message_memory(), impl.states())) {}

 private:
  Result<std::shared_ptr<client::BatchMessages>> Cut() override {
    if (impl_.options().send_each_key_once && !batches_->gpu) client::SendEachKeyOnce(*batches_);
    if (Status status = CutInto(0); !status.ok()) return status;
    return std::shared_ptr<client::BatchMessages>(messages_);
  }

  void End(const Status& status) override {
    if (status.ok()) client::CopyRepeatedRows(*batches_);
    for (std::size_t i = 0; status.ok() && i < batches_->tables.size(); ++i) {
      impl_.states().NoteLookup(batches_->tables[i].table, messages_->states().Of(i));
    }
    const bool may_have_inserted =
        mode_ == LookupMode::kTrain && status.code() == StatusCode::kResourceExhausted;
    done_(may_have_inserted ? client::WithAnsweredParts(status, *batches_, messages_->answered()) : status);
  }

  const LookupMode mode_;
  const Done done_;
  const std::shared_ptr<client::LookupMessages> messages_;
};

class Client::BatchCall::Push final : public BatchCall {
 public:
  // `done` is called when all parts are answered.
  Push(Impl& impl, const Call& call, Batches pushes, PushDone done)
      : BatchCall(impl, call, std::move(pushes)), done_(std::move(done)) {
    for (std::size_t i = 0; i < batches_->tables.size(); ++i) {
      TableBatch& table = batches_->tables[i];
      if (i < call.looked_up.size())
        table.looked_up = {call.looked_up[i].generation, call.looked_up[i].table_step};
      if (i < call.learning_rates.size()) table.learning_rate = call.learning_rates[i];
      if (table.looked_up.generation == 0) table.looked_up = impl.states().LookedUp(table.table);
    }
  }

  // Begins the push as step `named`, or else as the next step of the client's own session.
  void BeginAs(const std::optional<Step>& named) {
    is_named_ = named.has_value();
    step_ = named ? *named : impl_.session().Next();
    sent_again_ = false;
    if (Status status = Validate(step_); !status.ok()) return done_(status);
    Begin();
  }

 private:
  Result<std::shared_ptr<client::BatchMessages>> Cut() override {
    if (Status status = CutInto(step_.parts); !status.ok()) return status;
    const std::uint64_t own_parts = batches_->requests.back().back().part + 1;  // the same for every table
    const std::uint64_t parts = own_parts * step_.trainers;
    const std::uint64_t tables = batches_->tables.size();
    if (parts * tables > StepId::kMaxParts) {
      return ResourceExhausted("the batch would be cut into " + std::to_string(parts * tables) +
                               " parts: a step has at most " + std::to_string(StepId::kMaxParts))
          .Because(Reason::kTooLarge);
    }
    const auto step_of = [step = step_, own_parts, parts, tables](const Piece& piece) {
      return StepId{.session = step.session,
                    .number = step.number,
                    .part = static_cast<std::uint32_t>(step.trainer * own_parts + piece.part),
                    .parts = static_cast<std::uint32_t>(parts),
                    .epoch = step.epoch,
                    .place = static_cast<std::uint32_t>(piece.table),
                    .tables = static_cast<std::uint32_t>(tables)};
    };
    messages_ = std::make_shared<client::PushMessages>(batches_, step_of, call_.data_type,
                                                       impl_.message_memory(), impl_.states());
    return std::shared_ptr<client::BatchMessages>(messages_);
  }

  void End(const Status& status) override {
    if (status.ok()) return done_(messages_ ? messages_->steps() : std::vector<std::uint64_t>());
    const bool is_own = !is_named_ || step_.session == impl_.session().id();
    if (renews_ || !is_own || status.reason() != Reason::kSessionForgotten) return done_(status);
    renews_ = true;
    const auto then = [this, self = shared_from_this(), refused = status](const Status& renewed) {
      // A part that was refused at its only try was never accepted, so the step was not applied.
      if (is_named_ || sent_again_ || !renewed.ok()) return done_(refused);
      BeginAs(std::nullopt);
    };
    RenewSession(then);
  }

  // Asks the server for its epoch. Then draws a new own session of that epoch, if the own session is still
  // the step's. Calls `then`, with the error if the server does not answer.
  void RenewSession(std::function<void(const Status&)> then) {
    const auto read = [this, self = shared_from_this(),
                       forgotten = step_.session](const grpc::ByteBuffer& bytes) -> Status {
      v1::GetTopologyReply reply;
      if (Status status = client::Deserialize(bytes, reply); !status.ok()) return status;
      impl_.session().Renew(forgotten, reply.epoch());
      return {};
    };
    impl_.runs().Send(call_, {client::ToAsk("GetTopology", v1::GetTopologyRequest(), read)}, std::move(then));
  }

  const PushDone done_;
  bool is_named_ = false;
  bool renews_ = false;  // the client renews its own session, which the server has forgotten
  Step step_;
  std::shared_ptr<client::PushMessages> messages_;  // once the batches are cut
};

void Client::LookupAsync(std::span<const TableLookup> lookups, LookupMode mode, Done done,
                         const CallOptions& call) {
  Batches batches;
  for (const TableLookup& lookup : lookups) {
    batches.tables.push_back({.table = std::string(lookup.table), .view = lookup.batch, .out = lookup.out});
  }
  std::make_shared<BatchCall::Lookup>(*impl_, impl_->CallOf(call), std::move(batches), mode, std::move(done))
      ->Begin();
}

void Client::PushAsync(std::span<const TablePush> pushes, const std::optional<Step>& step, PushDone done,
                       const CallOptions& call) {
  Batches batches{.tables = {}, .pushes = true};
  for (const TablePush& push : pushes) {
    batches.tables.push_back(
        {.table = std::string(push.table), .view = push.batch, .gradients = push.gradients});
  }
  std::make_shared<BatchCall::Push>(*impl_, impl_->CallOf(call), std::move(batches), std::move(done))
      ->BeginAs(step);
}

void Client::LookupOnGpuAsync(std::span<const GpuLookup> lookups, LookupMode mode, const Gpu& gpu,
                              GpuRowsDone done, const CallOptions& call,
                              const std::shared_ptr<GpuPushUnderWay>& behind) {
  auto batches = OnGpu(gpu);
  if (!batches.ok()) return done(batches.status());
  batches->gpu->of.behind = std::static_pointer_cast<client::Turn>(behind);
  for (const GpuLookup& lookup : lookups) AddOnGpu(lookup, *batches);
  const auto ended = [gpu = batches->gpu, done = std::move(done)](const Status& status) {
    gpu->of.carried.reset();
    if (!status.ok()) return done(status);
    done(std::move(gpu->rows));
  };
  std::make_shared<BatchCall::Lookup>(*impl_, impl_->CallOf(call), std::move(*batches), mode, ended)->Begin();
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
  const auto ended = [gpu = batches->gpu, turn, done = std::move(done)](const auto& steps) {
    gpu->of.carried.reset();
    turn->End(steps.ok());
    done(steps);
  };
  std::make_shared<BatchCall::Push>(*impl_, impl_->CallOf(call), std::move(*batches), ended)->BeginAs(step);
  return turn;
}

LookedUpState Client::LookedUp(std::string_view table) const {
  const client::TableState state = impl_->states().LookedUp(table);
  return {.generation = state.generation, .table_step = state.step};
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
