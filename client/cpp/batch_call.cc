#include "client/cpp/batch_call.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/batch_exchange.h"
#include "client/cpp/batch_messages.h"
#include "client/cpp/gpu_exchange.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {
namespace {

using client::Batches;
using client::Call;
using client::Piece;
using client::Request;
using client::TableBatch;
using client::TableBatches;
using client::TableState;

// Returns the call's requests.
std::vector<Request> RequestsFor(const std::shared_ptr<Batches>& batches, DataType type,
                                 const std::shared_ptr<client::BatchMessages>& messages) {
  std::vector<Request> requests;
  if (batches->gpu) {
    requests.push_back({.exchange = std::make_shared<client::GpuExchange>(batches, type, messages),
                        .gpu = batches->gpu->gpu});
    return requests;
  }
  for (std::size_t i = 0; i < batches->requests.size(); ++i) {
    requests.push_back({.exchange = std::make_shared<client::BatchExchange>(batches, i, type, messages)});
  }
  return requests;
}

// Whoever hears that one table has lost steps is told at once of so many others.
constexpr std::size_t kMostTables = 1024;

std::vector<std::string> NamesOf(const TableBatches& tables) {
  std::vector<std::string> names;
  for (const TableBatch& table : tables) names.push_back(table.table);
  return names;
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
    if (status.code() == StatusCode::kDataLoss) return AddOtherLosses(impl, call, status, done);
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
                    impl.Start(call, std::move(*requests), finish);
                  });
}

void Client::BatchCall::AddOtherLosses(Impl& impl, const Call& call, const Status& loss, const Done& done) {
  struct Found {
    std::mutex mutex;
    std::string message;
  };
  const auto tables = impl.states().AllAcknowledged(kMostTables);
  if (tables.empty()) return done(loss);
  const auto found = std::make_shared<Found>();
  std::vector<Request> requests;
  for (const auto& [name, state] : tables) {
    const auto read = [&impl, name, state, found](const grpc::ByteBuffer& bytes) -> Status {
      v1::DescribeTableReply reply;
      if (Status status = client::Deserialize(bytes, reply); !status.ok()) return status;
      const TableState now{reply.lineage(), reply.steps(), 0, reply.lost_from()};
      const Status lost = impl.states().Check(name, state, now);
      const std::lock_guard lock(found->mutex);
      if (!lost.ok()) found->message += "; " + lost.message();
      return {};
    };
    requests.push_back(client::ToAsk("DescribeTable", client::DescribeRequest(name, state), read));
  }
  impl.Start(call, std::move(requests),
             [found, loss, done](const Status&) { done(loss.InWords(loss.message() + found->message)); });
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

}  // namespace slotwise
