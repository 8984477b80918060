#include "server/engine/request.h"

namespace slotwise {
namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

void Announce(Announcement& announcement, Operation operation, TableId table) {
  announcement.operation = operation;
  announcement.table = table;
}

void Announce(Announcement& announcement, Operation operation, TableId table, const BatchPart& batch) {
  Announce(announcement, operation, table);
  announcement.samples = batch.samples;
  announcement.keys = static_cast<std::uint32_t>(batch.keys.size());
  announcement.weighted = batch.weights.size() > 0;
}

}  // namespace

BatchPart* BatchOf(Request& request) {
  return std::visit(
      []<class Kind>(Kind& r) -> BatchPart* {
        if constexpr (requires { r.batch; }) {
          return &r.batch;
        } else {
          return nullptr;
        }
      },
      request);
}

Reservation* ReservationOf(Request& request) {
  if (auto* const read = std::get_if<ReadRowsRequest>(&request)) return &read->reservation;
  BatchPart* const batch = BatchOf(request);
  return batch == nullptr ? nullptr : &batch->reservation;
}

Reservation* AnswerReservationOf(Request& request) {
  return std::visit(
      []<class Kind>(Kind& r) -> Reservation* {
        if constexpr (requires { r.answer_reservation; }) {
          return &r.answer_reservation;
        } else {
          return nullptr;
        }
      },
      request);
}

std::uint64_t AnswerBytesOf(const Request& request) {
  const auto* const lookup = std::get_if<LookupRequest>(&request);
  return lookup == nullptr ? 0 : lookup->answer_bytes;
}

std::uint64_t BytesOf(const Request& request) {
  return std::visit(
      []<class Kind>(const Kind& r) -> std::uint64_t {
        if constexpr (requires { r.batch; }) {
          return r.batch.bytes();
        } else if constexpr (requires { r.keys; }) {
          return r.keys.size() * sizeof(Key);
        } else {
          return 0;
        }
      },
      request);
}

Announcement AnnouncementOf(const Request& request) {
  Announcement a;
  std::visit(Overloaded{
                 [&](const LookupRequest& r) {
                   Announce(a, Operation::kLookup, r.table, r.batch);
                   a.mode = r.mode;
                   a.joined = r.joined;
                 },
                 [&](const PushRequest& r) {
                   Announce(a, Operation::kPush, r.table, r.batch);
                   a.step = r.step;
                   a.body = r.body;
                   a.learning_rate = r.learning_rate;
                 },
                 [&](const CreateTableRequest&) { a.operation = Operation::kCreateTable; },
                 [&](const DropTableRequest& r) { Announce(a, Operation::kDropTable, r.table); },
                 [&](const SummarizeRequest& r) {
                   Announce(a, Operation::kSummarize, r.table);
                   a.with_digest = r.with_digest;
                 },
                 [&](const SetLearningRateRequest& r) {
                   Announce(a, Operation::kSetLearningRate, r.table);
                   a.learning_rate = r.learning_rate;
                 },
                 [&](const ImportRequest& r) {
                   Announce(a, Operation::kImport, r.table, r.batch);
                   a.with_state = r.with_state;
                   a.table_steps = r.table_steps;
                 },
                 [&](const EraseRequest& r) { Announce(a, Operation::kErase, r.table, r.batch); },
                 [&](const ListKeysRequest& r) { Announce(a, Operation::kListKeys, r.table); },
                 [&](const ReadRowsRequest& r) { Announce(a, Operation::kReadRows, r.table); },
                 [&](const SaveCheckpointRequest& r) {
                   a.operation = Operation::kSaveCheckpoint;
                   a.delta = r.delta;
                   a.value_type = r.value_type;
                 },
                 [&](const CheckpointEventRequest& r) {
                   a.operation = Operation::kCheckpointEvent;
                   a.event = r.event;
                   a.failed = r.failed;
                 },
                 [&](const LoadCheckpointRequest&) { a.operation = Operation::kLoadCheckpoint; },
                 [&](const DescribeSessionRequest&) { a.operation = Operation::kDescribeSession; },
             },
             request);
  return a;
}

const Caller& CallerOf(const Request& request) {
  return std::visit([](const auto& r) -> const Caller& { return r.caller; }, request);
}

bool IsAbandoned(const Request& request) {
  const auto* const push = std::get_if<PushRequest>(&request);
  const bool others_wait = push != nullptr && (push->step.parts > 1 || push->step.tables > 1);
  return !others_wait && CallerOf(request).gone();
}

bool IsAboutTable(const Request& request) {
  return std::visit(
      []<class Kind>(const Kind&) { return !requires(Kind r) { r.batch; } && !requires(Kind r) { r.keys; }; },
      request);
}

void Refuse(Request& request, const Status& status) {
  std::visit([&](auto& r) { r.done(status); }, request);
}

void RefuseWithOthers(Request& request, const Status& status) {
  std::visit(
      [&](auto& r) {
        if constexpr (requires { r.refused_with_others; }) {
          if (r.refused_with_others) return r.refused_with_others(status);
        }
        r.done(status);
      },
      request);
}

}  // namespace slotwise
