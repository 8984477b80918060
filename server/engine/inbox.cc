#include "server/engine/inbox.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace slotwise {

// Arrays that are charged to some budget already are not charged again.
Inbox::Charge Inbox::ChargeOf(Request& request) const {
  Charge charge;
  const Reservation* const arrays = ReservationOf(request);
  if (arrays != nullptr && arrays->bytes() == 0) charge.arrays = BytesOf(request);
  if (AnswerReservationOf(request) != nullptr)
    charge.answer = options_.request_bytes + AnswerBytesOf(request);
  return charge;
}

Status Inbox::Add(std::span<Request> requests) {
  std::uint64_t bytes = 0;
  for (Request& request : requests) {
    const Charge charge = ChargeOf(request);
    bytes += charge.arrays + charge.answer;
  }
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return Unavailable("the server is stopping");
    // A request fits alone, however large it is: the engine has checked each against the round's limit.
    std::optional<Reservation> room = budget_.Reserve(bytes);
    if (!room && std::ranges::any_of(requests, [&](const Request& request) { return IsFavoured(request); })) {
      room = budget_.Reserve(bytes, options_.beyond_bytes);
    }
    if (!room) {
      return Unavailable("the server is busy: " + std::to_string(budget_.used()) +
                         " bytes of requests and replies wait, and limits.max_inbox_mib leaves no room for " +
                         std::to_string(bytes) + " more");
    }
    for (Request& request : requests) {
      const Charge charge = ChargeOf(request);
      if (charge.arrays > 0) *ReservationOf(request) = room->Split(charge.arrays);
      if (charge.answer > 0) *AnswerReservationOf(request) = room->Split(charge.answer);
    }
    std::ranges::move(requests, std::back_inserter(requests_));
  }
  news_.notify_one();
  return {};
}

bool Inbox::IsFavoured(const Request& request) const {
  const auto* push = std::get_if<PushRequest>(&request);
  return push != nullptr && favoured_ == KeyOf(push->table, push->step);
}

void Inbox::Favour(const std::optional<StepKey>& step) {
  const std::scoped_lock lock(mutex_);
  favoured_ = step;
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
  nudged_ = false;
  return taken;
}

bool Inbox::AwaitNews(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  const auto news = [&] { return !requests_.empty() || closing_is_news_ || nudged_; };
  clock_.WaitFor(news_, lock, most, [&] { return news() || nudged_locally_; });
  nudged_locally_ = false;
  return news();
}

void Inbox::NudgeLocally() {
  {
    const std::scoped_lock lock(mutex_);
    nudged_locally_ = true;
  }
  news_.notify_one();
}

void Inbox::Nudge() {
  {
    const std::scoped_lock lock(mutex_);
    nudged_ = true;
  }
  news_.notify_one();
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
