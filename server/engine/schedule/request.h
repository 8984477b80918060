// Request: a request to the engine, as the schedule sees it: the caller, a batch, the budgets that it is
// charged to, its proposal, and a way to refuse it. Each operation's file (operations/) has its own type of
// requests, from which a Request is made.
//
// A type of requests R has these members:
//
//     static constexpr Operation kOperation     and kClass, an OperationClass; kDropsTable, optional
//     Caller caller                             the sender
//     done                                      called once, with a Result or Status
//     TableId table                             optional; without it the request is of no table
//     BatchPart batch                           optional; its bags have the shape BagsIn(options), if R has
//                                               that function, otherwise the table's
//     Payload payload() const                   optional: the proposal's payload
//     Reservation reservation, answer_reservation
//                                               optional: charges for the request and for its answer
//     std::uint64_t answer_bytes                optional: of the answer's arrays; set by SizeAnswer(options)
//     std::vector<Key> keys                     optional
//     std::uint64_t generation                  optional: the table's, as the caller knows it
//     refused_with_others                       optional: called in the place of `done`, if it is given,
//                                               for a refusal whose reason is not the request's own
//     mode, joined                              of class kLookup
//     step, body, learning_rate                 of class kStepPart
//
// Thread-safety: a plain value, which can be moved. `done` is called once, by the engine's thread or the
// caller's, and must not block.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_REQUEST_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_REQUEST_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "server/engine/batch_part.h"
#include "server/engine/budget.h"
#include "server/engine/caller.h"
#include "server/engine/schedule/proposal.h"
#include "server/engine/schedule/round.h"
#include "server/engine/tables.h"
#include "slotwise/batch.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

template <class R>
concept RequestType = requires(R request, const Status& status) {
  { R::kOperation } -> std::convertible_to<Operation>;
  { R::kClass } -> std::convertible_to<OperationClass>;
  { request.caller } -> std::convertible_to<const Caller&>;
  request.done(status);
};

// The shape of a batch's bags: bags in a sample, and numbers in a bag.
struct BagShape {
  std::uint32_t slots = 1;
  std::uint32_t columns = 0;
};

class Request {
 public:
  template <RequestType R>
  Request(R request)  // NOLINT(google-explicit-constructor): it is that request
      : body_(std::make_unique<Of<R>>(std::move(request))) {}

  template <RequestType R>
  bool Is() const {
    return body_->operation() == R::kOperation;
  }
  // Throws std::logic_error: the request is of another operation.
  template <RequestType R>
  R& As() {
    return const_cast<R&>(std::as_const(*this).As<R>());
  }
  template <RequestType R>
  const R& As() const {
    if (!Is<R>()) throw std::logic_error("a request is of another operation than asked for");
    return static_cast<const Of<R>&>(*body_).request;
  }

  const Caller& caller() const { return body_->caller(); }
  // Returns the request's proposal, without its ticket.
  Proposal proposal() const { return body_->Propose(); }

  // Return the batch, and the charge for its arrays; null if the request has none.
  BatchPart* batch() { return body_->batch(); }
  const BatchPart* batch() const { return body_->batch(); }
  Reservation* reservation() { return body_->reservation(); }
  // Returns the charge for the answer; null if answers of its kind are charged nothing.
  Reservation* answer_reservation() { return body_->answer_reservation(); }
  // Return the bytes of the request's arrays, and of its answer's.
  std::uint64_t bytes() const { return body_->bytes(); }
  std::uint64_t answer_bytes() const { return body_->answer_bytes(); }
  // Returns the bytes that the request takes in its round. REQUIRES: batch().
  std::uint64_t BytesInRound(const TableOptions& table) const { return body_->BytesInRound(table); }
  // Fills in answer_bytes().
  void SizeAnswer(const TableOptions& table) { body_->SizeAnswer(table); }

  // Return the table that the request names, 0 for none; and the table's generation as the caller knows it, 0
  // if the caller does not say.
  TableId table() const { return body_->table(); }
  std::uint64_t generation() const { return body_->generation(); }
  // Returns the step that the request is a part of; null if it is none.
  const StepId* step() const { return body_->step(); }

  // Returns whether the request is not needed any more, because its caller is gone. A part of a step of
  // several parts is always needed, because the other parts may wait for it.
  bool is_abandoned() const;
  // Returns whether the request is about a whole table, without keys or a batch. Such a request is charged
  // nothing.
  bool is_about_table() const { return body_->is_about_table(); }

  // Answers with an error.
  void Refuse(const Status& why) { body_->Refuse(why); }
  // Answers with an error whose reason is another request.
  void RefuseWithOthers(const Status& why) { body_->RefuseWithOthers(why); }
  // Answers a part of a step with an error, so that its caller can go, but keeps the part.
  void RefuseAndKeep(const Status& why) { body_->RefuseAndKeep(why); }
  // Answers a part that was applied before. REQUIRES: step().
  void AnswerApplied(const AppliedStep& applied) { body_->AnswerApplied(applied); }

 private:
  struct Body {
    virtual ~Body() = default;
    virtual Operation operation() const = 0;
    virtual const Caller& caller() const = 0;
    virtual Proposal Propose() const = 0;
    virtual BatchPart* batch() = 0;
    virtual Reservation* reservation() = 0;
    virtual Reservation* answer_reservation() = 0;
    virtual std::uint64_t bytes() const = 0;
    virtual std::uint64_t answer_bytes() const = 0;
    virtual std::uint64_t BytesInRound(const TableOptions& table) const = 0;
    virtual void SizeAnswer(const TableOptions& table) = 0;
    virtual TableId table() const = 0;
    virtual std::uint64_t generation() const = 0;
    virtual const StepId* step() const = 0;
    virtual bool is_about_table() const = 0;
    virtual void Refuse(const Status& why) = 0;
    virtual void RefuseWithOthers(const Status& why) = 0;
    virtual void RefuseAndKeep(const Status& why) = 0;
    virtual void AnswerApplied(const AppliedStep& applied) = 0;
  };

  template <class R>
  struct Of;

  std::unique_ptr<Body> body_;
};

template <class R>
struct Request::Of final : Body {
  static constexpr bool kHasBatch = requires(R r) { r.batch; };
  static constexpr bool kHasKeys = requires(R r) { r.keys; };
  static constexpr bool kOfTable = requires(R r) { r.table; };
  static constexpr bool kIsPart = R::kClass == OperationClass::kStepPart;
  static constexpr bool kIsLookup = R::kClass == OperationClass::kLookup;
  static_assert(kOfTable || R::kClass == OperationClass::kAlone, "such requests are of a table");
  static_assert(kHasBatch || (!kIsPart && !kIsLookup), "such requests have a batch");
  static_assert(
      !requires(R r) { r.payload(); } || requires(const R r) { r.payload(); },
      "payload() has to be const: else it would not be found");

  explicit Of(R r) : request(std::move(r)) {}

  Operation operation() const override { return R::kOperation; }
  const Caller& caller() const override { return request.caller; }

  Proposal Propose() const override {
    Proposal a;
    a.operation = R::kOperation;
    a.operation_class = R::kClass;
    a.of_table = kOfTable;
    a.table = table();
    if constexpr (requires { R::kDropsTable; }) a.drops_table = R::kDropsTable;
    if constexpr (requires { request.payload(); }) a.payload = request.payload();
    if constexpr (kHasBatch) {
      a.samples = request.batch.samples;
      a.keys = static_cast<std::uint32_t>(request.batch.keys.size());
      a.weighted = request.batch.weights.size() > 0;
    }
    if constexpr (kIsLookup) {
      a.mode = request.mode;
      a.joined = request.joined;
    }
    if constexpr (kIsPart) {
      a.step = request.step;
      a.body = request.body;
      a.learning_rate = request.learning_rate;
    }
    return a;
  }

  BatchPart* batch() override {
    if constexpr (kHasBatch) {
      return &request.batch;
    } else {
      return nullptr;
    }
  }
  Reservation* reservation() override {
    if constexpr (requires { request.reservation; }) {
      return &request.reservation;
    } else if constexpr (kHasBatch) {
      return &request.batch.reservation;
    } else {
      return nullptr;
    }
  }
  Reservation* answer_reservation() override {
    if constexpr (requires { request.answer_reservation; }) {
      return &request.answer_reservation;
    } else {
      return nullptr;
    }
  }
  std::uint64_t bytes() const override {
    if constexpr (kHasBatch) {
      return request.batch.bytes();
    } else if constexpr (kHasKeys) {
      return request.keys.size() * sizeof(Key);
    } else {
      return 0;
    }
  }
  std::uint64_t answer_bytes() const override {
    if constexpr (requires { request.answer_bytes; }) {
      return request.answer_bytes;
    } else {
      return 0;
    }
  }
  std::uint64_t BytesInRound(const TableOptions& options) const override {
    if constexpr (kHasBatch) {
      BagShape bags{options.slots, options.dim};
      if constexpr (requires { request.BagsIn(options); }) bags = request.BagsIn(options);
      const BatchPart& part = request.batch;
      return (kIsPart ? StepBytes : RoundBytes)(part.samples, part.keys.size(), bags.slots, bags.columns,
                                                part.weights.size() > 0);
    } else {
      return 0;
    }
  }
  void SizeAnswer(const TableOptions& options) override {
    if constexpr (requires { request.SizeAnswer(options); }) request.SizeAnswer(options);
  }
  TableId table() const override {
    if constexpr (requires { request.table; }) {
      return request.table;
    } else {
      return TableId{0};
    }
  }
  std::uint64_t generation() const override {
    if constexpr (requires { request.generation; }) {
      return request.generation;
    } else {
      return 0;
    }
  }
  const StepId* step() const override {
    if constexpr (kIsPart) {
      return &request.step;
    } else {
      return nullptr;
    }
  }
  bool is_about_table() const override { return !kHasBatch && !kHasKeys; }
  void Refuse(const Status& why) override { request.done(why); }
  void RefuseWithOthers(const Status& why) override {
    if constexpr (requires { request.refused_with_others; }) {
      if (request.refused_with_others) return request.refused_with_others(why);
    }
    request.done(why);
  }
  void RefuseAndKeep(const Status& why) override {
    request.caller = {};
    if constexpr (requires { request.refused_with_others; }) request.refused_with_others = nullptr;
    std::exchange(request.done, [](const auto&) {})(why);
  }
  void AnswerApplied(const AppliedStep& applied) override {
    if constexpr (kIsPart) request.done(applied);
  }

  R request;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_REQUEST_H_
