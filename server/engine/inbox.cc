#include "server/engine/inbox.h"

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

Status Inbox::Add(Request& request) {
  const std::uint64_t bytes = BytesOf(request);
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return Unavailable("the server is stopping");
    // One request fits however large it is: the engine has checked it against the round's limit.
    if (bytes_ > 0 && bytes_ + bytes > max_bytes_) {
      return Unavailable("the server is busy: " + std::to_string(bytes_) + " bytes of requests wait");
    }
    bytes_ += bytes;
    requests_.push_back(std::move(request));
  }
  news_.notify_one();
  return {};
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
  return news_.wait_for(lock, most, [&] { return !requests_.empty() || closing_is_news_; });
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
