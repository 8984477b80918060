#include "client/cpp/batch_call.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/batch_exchange.h"
#include "client/cpp/gpu_exchange.h"
#include "client/cpp/looked_up.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/admin.pb.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/nested.h"

namespace slotwise {
namespace {

using client::Batches;
using client::Call;
using client::Piece;
using client::Pieces;
using client::Request;
using client::SampleRange;
using client::TableBatch;
using client::TableBatches;
using client::TableState;

// LookupMany and PushMany, and their replies, have one field.
constexpr int kMany = v1::LookupManyRequest::kLookupsFieldNumber;
static_assert(kMany == v1::LookupManyReply::kRepliesFieldNumber &&
              kMany == v1::PushManyRequest::kPushesFieldNumber);

// Messages say how the pieces of a call's requests become messages of either transport, and read replies.
struct Messages {
  std::function<grpc::ByteBuffer(const TableBatch&, const Piece&)> message;
  client::BatchExchange::AddMessage add_message;
  std::function<Status(std::size_t request, const v1::DataReply&)> read;
};

// Returns the call's requests.
std::vector<Request> RequestsFor(const std::shared_ptr<Batches>& batches, DataType type,
                                 const Messages& messages) {
  const std::string method = std::string("/slotwise.v1.Embedding/") + (batches->pushes ? "Push" : "Lookup") +
                             (batches->many ? "Many" : "");
  std::vector<Request> requests;
  if (batches->gpu) {
    requests.push_back({.method = method,
                        .data = std::make_shared<client::GpuExchange>(
                            batches, type, messages.add_message,
                            [read = messages.read](const v1::DataReply& reply) { return read(0, reply); }),
                        .gpu = batches->gpu->gpu});
    return requests;
  }
  for (std::size_t i = 0; i < batches->requests.size(); ++i) {
    requests.push_back(
        {.method = method,
         .write =
             [batches, message = messages.message, i] {
               std::vector<grpc::ByteBuffer> parts;
               for (const Piece& piece : batches->requests[i]) {
                 parts.push_back(message(batches->tables[piece.table], piece));
               }
               return batches->many ? JoinMessages(kMany, parts) : parts.front();
             },
         .data = std::make_shared<client::BatchExchange>(
             batches, i, type, messages.add_message,
             [read = messages.read, i](const v1::DataReply& reply) { return read(i, reply); })});
  }
  return requests;
}

// Returns the message for each piece in a request's reply.
Result<std::vector<grpc::ByteBuffer>> RepliesIn(const grpc::ByteBuffer& reply, const Pieces& request,
                                                bool many) {
  if (!many) return std::vector{reply};
  auto replies = SplitMessages(reply, kMany, "reply");
  if (!replies.ok()) {
    return Status(StatusCode::kInternal, "the reply is malformed: " + replies.status().message());
  }
  if (replies->size() != request.size()) {
    return Status(StatusCode::kInternal, "the reply has " + std::to_string(replies->size()) +
                                             " messages, not one for each of the request's " +
                                             std::to_string(request.size()));
  }
  return replies;
}

Status ReadValues(Batches& batches, std::size_t request, const grpc::ByteBuffer& reply, DataType type,
                  client::AcknowledgedSteps& acknowledged, client::OldestStates& states) {
  const Pieces& pieces = batches.requests[request];
  const auto replies = RepliesIn(reply, pieces, batches.many);
  if (!replies.ok()) return replies.status();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const TableBatch& table = batches.tables[pieces[i].table];
    const SampleRange samples = pieces[i].samples;
    const std::uint32_t width = table.checked.width;
    const auto out = table.out.subspan(samples.first * width, samples.size() * width);
    const auto met = client::ReadLookupReply((*replies)[i], samples.size(), width, type, out);
    if (!met.ok()) return met.status();
    batches.answers[request].incarnation = met->incarnation;
    if (Status status = acknowledged.Check(table.table, table.before, *met); !status.ok()) return status;
    states.Meet(pieces[i].table, *met);
  }
  return {};
}

// The same of a reply by the data transport, of which the values are in place.
Status ReadStates(Batches& batches, std::size_t request, const v1::DataReply& reply,
                  client::AcknowledgedSteps& acknowledged, client::OldestStates& states) {
  const Pieces& pieces = batches.requests[request];
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const TableBatch& table = batches.tables[pieces[i].table];
    const v1::LookupReply& lookup = reply.lookups(static_cast<int>(i));
    const TableState met{lookup.lineage(), lookup.table_step(), lookup.incarnation(), lookup.lost_from()};
    batches.answers[request].incarnation = met.incarnation;
    if (Status status = acknowledged.Check(table.table, table.before, met); !status.ok()) return status;
    states.Meet(pieces[i].table, met);
  }
  return {};
}

// Reads the answer to a piece of a push: which step of its table it became a part of. All parts of a table's
// step have one answer, and that to the first part is put into `steps`, at the table's place.
Status ReadStep(const TableBatch& table, const Piece& piece, const v1::PushReply& reply,
                client::AcknowledgedSteps& acknowledged, std::vector<std::uint64_t>& steps) {
  const TableState now{reply.lineage(), reply.newest_step(), reply.incarnation(), reply.lost_from()};
  const Status lost = acknowledged.Check(table.table, table.before, now);
  acknowledged.Acknowledge(table.table, {reply.lineage(), reply.table_step(), reply.incarnation()});
  if (!lost.ok()) {
    return {lost.code(), lost.message() + "; this push was applied as the table's step " +
                             std::to_string(reply.table_step())};
  }
  if (piece.part == 0) steps[piece.table] = reply.table_step();
  return {};
}

// Reads the answers to a request of a push.
Status ReadSteps(Batches& batches, std::size_t request, const grpc::ByteBuffer& reply,
                 client::AcknowledgedSteps& acknowledged, std::vector<std::uint64_t>& steps) {
  const Pieces& pieces = batches.requests[request];
  const auto replies = RepliesIn(reply, pieces, batches.many);
  if (!replies.ok()) return replies.status();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    v1::PushReply parsed;
    if (Status status = client::Deserialize((*replies)[i], parsed); !status.ok()) return status;
    batches.answers[request].incarnation = parsed.incarnation();
    if (Status status = ReadStep(batches.tables[pieces[i].table], pieces[i], parsed, acknowledged, steps);
        !status.ok()) {
      return status;
    }
  }
  return {};
}
Status ReadSteps(Batches& batches, std::size_t request, const v1::DataReply& reply,
                 client::AcknowledgedSteps& acknowledged, std::vector<std::uint64_t>& steps) {
  const Pieces& pieces = batches.requests[request];
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const v1::PushReply& push = reply.pushes(static_cast<int>(i));
    batches.answers[request].incarnation = push.incarnation();
    if (Status status = ReadStep(batches.tables[pieces[i].table], pieces[i], push, acknowledged, steps);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

// Tells whether a push was refused because the server does not know its session, and has forgotten some
// that may be it (Agenda::AnswerFromLedger).
bool IsOfForgottenSession(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition &&
         status.message().find(" may have been applied before: the server does not know the session") !=
             std::string::npos;
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
                              MakeRequests make_requests, client::Run::OnReply on_reply, Done done) {
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
  for (TableBatch& table : batches->tables) table.before = impl.acknowledged().Of(table.table);
  impl.WithTables(call, NamesOf(batches->tables),
                  [&impl, call, batches, finish, make_requests = std::move(make_requests),
                   on_reply = std::move(on_reply)](const Result<Impl::Tables>& options) {
                    if (!options.ok()) return finish(options.status());
                    if (Status status = client::Check(*batches, *options); !status.ok()) {
                      return finish(status);
                    }
                    auto requests = make_requests(impl, call, batches);
                    if (!requests.ok()) return finish(requests.status());
                    impl.Address(*requests);
                    // The batches outlive the requests, and keep what is known of each one's answer.
                    batches->answers.assign(requests->size(), {});
                    for (std::size_t i = 0; i < requests->size(); ++i) {
                      (*requests)[i].answered_by =
                          std::shared_ptr<std::string>(batches, &batches->answers[i].address);
                    }
                    impl.Start(call, std::move(*requests), on_reply, finish);
                  });
}

void Client::BatchCall::AddOtherLosses(Impl& impl, const Call& call, const Status& loss, const Done& done) {
  struct Found {
    std::mutex mutex;
    std::string message;
  };
  const auto tables = impl.acknowledged().All(kMostTables);
  if (tables.empty()) return done(loss);
  std::vector<Request> requests;
  for (const auto& [name, state] : tables) {
    requests.push_back({.method = "/slotwise.v1.Admin/DescribeTable",
                        .message = client::Serialize(client::DescribeRequest(name, state))});
  }
  const auto found = std::make_shared<Found>();
  const auto read = [&impl, tables, found](std::size_t i, const grpc::ByteBuffer& bytes) -> Status {
    v1::DescribeTableReply reply;
    if (Status status = client::Deserialize(bytes, reply); !status.ok()) return status;
    const auto& [name, state] = tables[i];
    const TableState now{reply.lineage(), reply.steps(), 0, reply.lost_from()};
    const Status lost = impl.acknowledged().Check(name, state, now);
    const std::lock_guard lock(found->mutex);
    if (!lost.ok()) found->message += "; " + lost.message();
    return {};
  };
  impl.Start(call, std::move(requests), read, [found, loss, done](const Status&) {
    done({loss.code(), loss.message() + found->message});
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
  const auto answered = std::make_shared<client::AnsweredParts>();
  const auto states = std::make_shared<client::OldestStates>();
  const auto make = [mode, answered, states](
                        Impl& client, const Call& the_call,
                        const std::shared_ptr<Batches>& cut) -> Result<std::vector<Request>> {
    if (client.options().send_each_key_once && !cut->gpu) client::SendEachKeyOnce(*cut);
    if (Status status = CutFor(client, the_call, *cut, 0); !status.ok()) return status;
    const DataType type = the_call.data_type;
    return RequestsFor(
        cut, type,
        {.message =
             [mode, type, memory = client.message_memory()](const TableBatch& table, const Piece& piece) {
               return client::LookupMessage(*memory, table.table, mode, type, table.checked, piece.samples,
                                            table.before);
             },
         .add_message =
             [mode, type](const TableBatch& table, const Piece& piece, v1::DataCall& data) {
               *data.add_lookups() =
                   client::LookupFields(table.table, mode, type, piece.samples, table.before);
             },
         .read =
             [&client, cut = std::weak_ptr(cut), answered, states](std::size_t request,
                                                                   const v1::DataReply& reply) {
               const auto sent = cut.lock();
               Status status = ReadStates(*sent, request, reply, client.acknowledged(), *states);
               if (status.ok()) answered->Add(sent->requests[request]);
               return status;
             }});
  };
  const auto read = [&impl, batches, answered, states, type = call.data_type](std::size_t request,
                                                                              const grpc::ByteBuffer& reply) {
    Status status = ReadValues(*batches, request, reply, type, impl.acknowledged(), *states);
    if (status.ok()) answered->Add(batches->requests[request]);
    return status;
  };
  Start(impl, call, batches, make, read,
        [&impl, batches, answered, states, mode, done = std::move(done)](const Status& status) {
          if (status.ok()) client::CopyRepeatedRows(*batches);
          for (std::size_t i = 0; status.ok() && i < batches->tables.size(); ++i) {
            impl.looked_up().Note(batches->tables[i].table, states->Of(i));
          }
          const bool may_have_inserted =
              mode == LookupMode::kTrain && status.code() == StatusCode::kResourceExhausted;
          done(may_have_inserted ? client::WithAnsweredParts(status, *batches, *answered) : status);
        });
}

void Client::BatchCall::Push(Impl& impl, const Call& call, Batches pushes, const std::optional<Step>& named,
                             PushManyDone done) {
  const auto batches = std::make_shared<Batches>(std::move(pushes));
  for (std::size_t i = 0; i < batches->tables.size(); ++i) {
    TableBatch& table = batches->tables[i];
    if (i < call.looked_up.size())
      table.looked_up = {call.looked_up[i].lineage, call.looked_up[i].table_step};
    if (i < call.learning_rates.size()) table.learning_rate = call.learning_rates[i];
    if (table.looked_up.lineage == 0) table.looked_up = impl.looked_up().Of(table.table);
  }
  const Step step = named ? *named : impl.session().Next();
  const auto sent_again = std::make_shared<std::atomic<bool>>(false);
  const auto answer = [&impl, call, batches, is_named = named.has_value(), step, sent_again,
                       done = std::move(done)](const Result<std::vector<std::uint64_t>>& steps) {
    const bool is_own = !is_named || step.session == impl.session().id();
    if (steps.ok() || !is_own || !IsOfForgottenSession(steps.status())) return done(steps);
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
                               PushManyDone done) {
  if (Status status = Validate(step); !status.ok()) return done(status);
  const auto table_steps = std::make_shared<std::vector<std::uint64_t>>(batches->tables.size());
  const auto make = [step, sent_again, table_steps](
                        Impl& client, const Call& the_call,
                        const std::shared_ptr<Batches>& cut) -> Result<std::vector<Request>> {
    if (Status status = CutFor(client, the_call, *cut, step.parts); !status.ok()) return status;
    const std::uint64_t own_parts = cut->requests.back().back().part + 1;  // as of every table
    const std::uint64_t parts = own_parts * step.trainers;
    const std::uint64_t tables = cut->tables.size();
    if (parts * tables > StepId::kMaxParts) {
      return ResourceExhausted("the batch would be cut into " + std::to_string(parts * tables) +
                               " parts: a step has at most " + std::to_string(StepId::kMaxParts));
    }
    const auto id_of = [step, own_parts, parts, tables](const Piece& piece) {
      return StepId{.session = step.session,
                    .number = step.number,
                    .part = static_cast<std::uint32_t>(step.trainer * own_parts + piece.part),
                    .parts = static_cast<std::uint32_t>(parts),
                    .epoch = step.epoch,
                    .place = static_cast<std::uint32_t>(piece.table),
                    .tables = static_cast<std::uint32_t>(tables)};
    };
    const DataType type = the_call.data_type;
    auto requests = RequestsFor(
        cut, type,
        {.message =
             [id_of, type, memory = client.message_memory()](const TableBatch& table, const Piece& piece) {
               return client::PushMessage(*memory, table.table, id_of(piece), table.checked, piece.samples,
                                          table.gradients, type, table.looked_up, table.before,
                                          table.learning_rate);
             },
         .add_message =
             [id_of, type](const TableBatch& table, const Piece& piece, v1::DataCall& data) {
               *data.add_pushes() = client::PushFields(table.table, id_of(piece), type, piece.samples,
                                                       table.looked_up, table.before, table.learning_rate);
             },
         .read =
             [&client, cut = std::weak_ptr(cut), table_steps](std::size_t request,
                                                              const v1::DataReply& reply) {
               const auto sent = cut.lock();
               return ReadSteps(*sent, request, reply, client.acknowledged(), *table_steps);
             }});
    for (Request& request : requests) request.sent_again = sent_again;
    return requests;
  };
  const auto read = [&impl, batches, table_steps](std::size_t request, const grpc::ByteBuffer& reply) {
    return ReadSteps(*batches, request, reply, impl.acknowledged(), *table_steps);
  };
  Start(impl, call, batches, make, read, [table_steps, done = std::move(done)](const Status& status) {
    if (!status.ok()) return done(status);
    done(*table_steps);
  });
}

}  // namespace slotwise
