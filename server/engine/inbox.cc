#include "server/engine/inbox.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace slotwise {
namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

std::uint64_t Bytes(const BatchPart& batch) {
  return batch.keys.bytes() + batch.offsets.bytes() + batch.weights.bytes();
}

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

std::uint64_t BytesOf(const Request& request) {
  return std::visit(Overloaded{
                        [](const LookupRequest& r) { return Bytes(r.batch); },
                        [](const PushRequest& r) { return Bytes(r.batch) + r.gradients.bytes(); },
                        [](const ImportRequest& r) { return Bytes(r.batch) + r.records.bytes(); },
                        [](const EraseRequest& r) { return Bytes(r.batch); },
                        [](const ReadRowsRequest& r) { return std::uint64_t{r.keys.size() * sizeof(Key)}; },
                        [](const auto&) { return std::uint64_t{0}; },
                    },
                    request);
}

Announcement Describe(const Request& request) {
  Announcement a;
  std::visit(Overloaded{
                 [&](const LookupRequest& r) {
                   Announce(a, Operation::kLookup, r.table, r.batch);
                   a.mode = r.mode;
                 },
                 [&](const PushRequest& r) {
                   Announce(a, Operation::kPush, r.table, r.batch);
                   a.step = r.step;
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
             },
             request);
  return a;
}

void Refuse(Request& request, const Status& status) {
  std::visit([&](auto& r) { r.done(status); }, request);
}

void DropArrays(Request& request) {
  auto& push = std::get<PushRequest>(request);
  push.batch = {};
  push.gradients = {};
}

Status Inbox::Add(std::span<Request> requests) {
  std::uint64_t bytes = 0;
  for (const Request& request : requests) bytes += BytesOf(request);
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return Unavailable("the server is stopping");
    // Requests fit alone, however large they are: the engine has checked each against the round's limit.
    const bool fit = bytes == 0 || bytes_ == 0 || bytes_ + bytes <= max_bytes_;
    if (!fit && std::ranges::none_of(requests, [&](const Request& request) { return IsFavoured(request); })) {
      return Unavailable("the server is busy: " + std::to_string(bytes_) + " bytes of requests wait");
    }
    bytes_ += bytes;
    std::ranges::move(requests, std::back_inserter(requests_));
  }
  news_.notify_one();
  return {};
}

bool Inbox::IsFavoured(const Request& request) const {
  const auto* push = std::get_if<PushRequest>(&request);
  return push != nullptr && favoured_ == StepKey{push->table, push->step.session, push->step.number};
}

void Inbox::Favour(const std::optional<StepKey>& step) {
  const std::scoped_lock lock(mutex_);
  favoured_ = step;
}

void Inbox::Release(std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  bytes_ -= bytes;
}

Inbox::Taken Inbox::Take(std::size_t most) {
  const std::scoped_lock lock(mutex_);
  Taken taken;
  while (!requests_.empty() && taken.requests.size() < most) {
    taken.requests.push_back(std::move(requests_.front()));
    requests_.pop_front();
  }
  taken.closed = closed_;
  closing_is_news_ = false;
  return taken;
}

bool Inbox::AwaitNews(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  return clock_.WaitFor(news_, lock, most, [&] { return !requests_.empty() || closing_is_news_; });
}

void Inbox::Close() {
  {
    const std::scoped_lock lock(mutex_);
    closing_is_news_ = closing_is_news_ || !closed_;
    closed_ = true;
  }
  news_.notify_one();
}

}  // namespace slotwise
