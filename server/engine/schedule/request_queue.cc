#include "server/engine/schedule/request_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

constexpr std::uint64_t kAnything = std::numeric_limits<std::uint64_t>::max() / 2;

// A part of a step with several parts or tables.
struct Part {
  StepKey step;
  std::uint64_t of = 0;      // number of parts of all tables
  std::uint64_t number = 0;  // among the parts of all tables
  auto operator<=>(const Part&) const = default;
};

}  // namespace

RequestQueue::RequestQueue(const RequestQueueOptions& options, Clock& clock)
    : clock_(clock),
      options_(options),
      parts_(options.max_bytes - options.max_bytes / kShareForOthers),
      others_(options.max_bytes / kShareForOthers) {}

RequestQueue::Steps RequestQueue::StepsIn(std::span<const Request> requests) {
  std::vector<Part> parts;
  for (const Request& request : requests) {
    if (request.step() == nullptr) continue;
    const StepId& step = *request.step();
    const std::uint64_t of = std::uint64_t{step.parts} * step.tables;
    const std::uint64_t number = std::uint64_t{step.place} * step.parts + step.part;
    if (of > 1) parts.push_back({KeyOf(request.table(), step), of, number});
  }
  if (parts.empty()) return Steps::kNone;
  std::ranges::sort(parts);
  const auto repeated = std::ranges::unique(parts);
  parts.erase(repeated.begin(), repeated.end());
  for (std::size_t i = 0; i < parts.size(); i += parts[i].of) {
    const std::size_t last = i + parts[i].of - 1;
    if (last >= parts.size() || parts[last].step != parts[i].step || parts[last].of != parts[i].of) {
      return Steps::kOthersComplete;
    }
  }
  return Steps::kComplete;
}

// Arrays that are charged to some budget already are not charged again.
RequestQueue::Charge RequestQueue::ChargeOf(Request& request) const {
  Charge charge;
  const Reservation* const arrays = request.reservation();
  if (arrays != nullptr && arrays->bytes() == 0) charge.arrays = request.bytes();
  if (request.answer_reservation() != nullptr)
    charge.answer = options_.request_bytes + request.answer_bytes();
  return charge;
}

Status RequestQueue::Add(std::span<Request> requests) {
  Message message{.requests = requests, .steps = StepsIn(requests)};
  for (Request& request : requests) {
    const Charge charge = ChargeOf(request);
    message.bytes += charge.arrays + charge.answer;
  }
  if (requests.size() > 1 && message.bytes > options_.max_bytes + options_.beyond_bytes) {
    return ResourceExhausted(
               "the requests of the message and their replies take " + std::to_string(message.bytes) +
               " bytes, for which limits.max_queue_mib never leaves room: send fewer in a message")
        .Because(Reason::kTooLarge);
  }
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return Unavailable("the server is stopping").Because(Reason::kStopping);
    if (Status busy = TooManyOfTables(requests.front()); !busy.ok()) return busy;
    std::optional<Reservation> room = Reserve(message);
    if (!room) return Busy(message);
    bytes_left_.Came(clock_.Now(), bytes() - message.bytes, message.bytes);
    if (requests.front().is_about_table()) {
      table_requests_left_.Came(clock_.Now(), requests_.table_requests(), requests.size());
    }
    for (Request& request : requests) {
      const Charge charge = ChargeOf(request);
      if (charge.arrays > 0) *request.reservation() = room->Split(charge.arrays);
      if (charge.answer > 0) *request.answer_reservation() = room->Split(charge.answer);
    }
    const Caller caller = requests.front().caller();
    requests_.Add(caller, {std::move_iterator(requests.begin()), std::move_iterator(requests.end())});
  }
  TellNews();
  return {};
}

// Any message fits while nothing is charged, and a single request that is no part of a step while no such
// request is charged: the engine has checked each request against the round's limit.
std::optional<Reservation> RequestQueue::Reserve(const Message& message) {
  const bool parts = message.steps == Steps::kOthersComplete;
  Budget& budget = parts ? parts_ : others_;
  std::optional<Reservation> room;
  if (bytes() == 0 || message.bytes == 0 || Fits(message, 0))
    room = budget.Reserve(message.bytes, parts ? 0 : kAnything);
  const std::uint64_t for_small = options_.max_bytes / kShareForSmall;
  if (!room && !parts && IsSmallAndFirst(message) && Fits(message, for_small))
    room = others_.Reserve(message.bytes, kAnything);
  // A message that seems to have a whole step may turn out not to, so such messages are bounded too.
  const bool alone_or_small = message.requests.size() == 1 || message.bytes <= others_.limit();
  if (!room && !parts && alone_or_small &&
      (message.steps == Steps::kNone || Fits(message, options_.beyond_bytes))) {
    room = others_.Reserve(message.bytes);
  }
  if (!room && Fits(message, options_.beyond_bytes) &&
      std::ranges::any_of(message.requests, [&](const Request& request) { return IsFavoured(request); })) {
    room = budget.Reserve(message.bytes, kAnything);
  }
  return room;
}

bool RequestQueue::IsSmallAndFirst(const Message& message) const {
  return message.bytes <= options_.max_bytes / kSmall && !requests_.Has(message.requests.front().caller());
}

bool RequestQueue::Fits(const Message& message, std::uint64_t beyond) const {
  const std::uint64_t most = options_.max_bytes + beyond;
  return message.bytes <= most && bytes() <= most - message.bytes;
}

std::chrono::milliseconds RequestQueue::RetryAfter() {
  const std::scoped_lock lock(mutex_);
  return bytes_left_.RetryAfter(clock_.Now(), bytes());
}

Status RequestQueue::Busy(const Message& message) {
  const auto retry_after = bytes_left_.RetryAfter(clock_.Now(), bytes());
  const std::string wanted = std::to_string(message.bytes);
  if (Fits(message, 0)) {
    return ResourceExhausted("the server is busy: " + std::to_string(parts_.used()) +
                                 " bytes of parts wait for the rest of their steps, and limits.max_queue_mib "
                                 "leaves no room for " +
                                 wanted + " more",
                             retry_after)
        .Because(Reason::kBusy);
  }
  return ResourceExhausted(
             "the server is busy: " + std::to_string(bytes()) +
                 " bytes of requests and replies wait, and limits.max_queue_mib leaves no room for " +
                 wanted + " more",
             retry_after)
      .Because(Reason::kBusy);
}

Status RequestQueue::TooManyOfTables(const Request& request) {
  const Caller& caller = request.caller();
  if (caller.is_server() || !request.is_about_table()) return {};
  const auto retry_after = [&] {
    return table_requests_left_.RetryAfter(clock_.Now(), requests_.table_requests());
  };
  if (requests_.table_requests_of(caller) >= kTableRequestsOfCaller) {
    return ResourceExhausted("the server is busy: " + std::to_string(kTableRequestsOfCaller) +
                                 " requests about tables wait that this caller has sent, and no more may",
                             retry_after())
        .Because(Reason::kBusy);
  }
  if (requests_.table_requests() >= kTableRequests) {
    return ResourceExhausted("the server is busy: " + std::to_string(kTableRequests) +
                                 " requests about tables wait, and no more may",
                             retry_after())
        .Because(Reason::kBusy);
  }
  return {};
}

void RequestQueue::ChargeAsWaiting(Request& request) {
  for (Reservation* const charged : {request.reservation(), request.answer_reservation()}) {
    if (charged != nullptr && others_.Has(*charged)) *charged = *parts_.Reserve(charged->bytes(), kAnything);
  }
}

bool RequestQueue::IsFavoured(const Request& request) const {
  return request.step() != nullptr && favoured_ == KeyOf(request.table(), *request.step());
}

void RequestQueue::Favour(const std::optional<StepKey>& step) {
  const std::scoped_lock lock(mutex_);
  favoured_ = step;
}

RequestQueue::Taken RequestQueue::Take(std::size_t most, std::uint64_t most_bytes) {
  const std::scoped_lock lock(mutex_);
  Taken taken;
  taken.requests = requests_.Take(most, most_bytes, &taken.abandoned);
  taken.closed = closed_;
  closing_is_news_ = false;
  nudged_ = false;
  return taken;
}

bool RequestQueue::AwaitNews(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  const auto news = [&] { return !requests_.empty() || closing_is_news_ || nudged_; };
  clock_.WaitFor(news_, lock, most, [&] { return news() || nudged_locally_; });
  nudged_locally_ = false;
  return news();
}

bool RequestQueue::HasNews() const {
  const std::scoped_lock lock(mutex_);
  return !requests_.empty() || closing_is_news_ || nudged_;
}

void RequestQueue::TellNews() {
  news_.notify_one();
  if (ring_) ring_();
}

void RequestQueue::NudgeLocally() {
  {
    const std::scoped_lock lock(mutex_);
    nudged_locally_ = true;
  }
  TellNews();
}

void RequestQueue::Nudge() {
  {
    const std::scoped_lock lock(mutex_);
    nudged_ = true;
  }
  TellNews();
}

void RequestQueue::Close() {
  {
    const std::scoped_lock lock(mutex_);
    closing_is_news_ = closing_is_news_ || !closed_;
    closed_ = true;
  }
  TellNews();
}

}  // namespace slotwise
