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

std::uint64_t Bytes(const BatchPart& batch) { return batch.keys.bytes() + batch.offsets.bytes(); }

void SetBatch(Announcement& announcement, const BatchPart& batch) {
  announcement.samples = batch.samples;
  announcement.keys = static_cast<std::uint32_t>(batch.keys.size());
}

}  // namespace

std::uint64_t BytesOf(const Request& request) {
  return std::visit(Overloaded{
                        [](const LookupRequest& r) { return Bytes(r.batch); },
                        [](const PushRequest& r) { return Bytes(r.batch) + r.gradients.bytes(); },
                        [](const auto&) { return std::uint64_t{0}; },
                    },
                    request);
}

Announcement Describe(const Request& request) {
  Announcement a;
  std::visit(Overloaded{
                 [&](const LookupRequest& r) {
                   a.operation = Operation::kLookup;
                   a.table = r.table;
                   a.mode = r.mode;
                   SetBatch(a, r.batch);
                 },
                 [&](const PushRequest& r) {
                   a.operation = Operation::kPush;
                   a.table = r.table;
                   a.step = r.step;
                   SetBatch(a, r.batch);
                 },
                 [&](const CreateTableRequest&) { a.operation = Operation::kCreateTable; },
                 [&](const DropTableRequest& r) {
                   a.operation = Operation::kDropTable;
                   a.table = r.table;
                 },
                 [&](const SummarizeRequest& r) {
                   a.operation = Operation::kSummarize;
                   a.table = r.table;
                   a.with_digest = r.with_digest;
                 },
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
