#include "server/engine/schedule/caller_queues.h"

#include <algorithm>
#include <utility>

namespace slotwise {

std::uint64_t CallerQueues::WeightOf(const Request& request) {
  if (request.is_about_table()) return kTableBytes;
  return kRequestBytes + request.bytes() + request.answer_bytes();
}

std::size_t CallerQueues::table_requests_of(const Caller& caller) const {
  const auto found = of_caller_.find(caller.name());
  return found == of_caller_.end() ? 0 : found->second->second.table_requests;
}

void CallerQueues::Add(const Caller& caller, std::vector<Request> message) {
  if (message.empty()) return;
  const auto about_tables =
      static_cast<std::size_t>(std::ranges::count_if(message, &Request::is_about_table));
  size_ += message.size();
  table_requests_ += about_tables;
  if (const auto found = of_caller_.find(caller.name()); found != of_caller_.end()) {
    Queue& queue = found->second->second;
    queue.table_requests += about_tables;
    queue.messages.push_back(std::move(message));
    return;
  }
  Queue queue{.caller = caller, .messages = {}, .table_requests = about_tables};
  queue.messages.push_back(std::move(message));
  double begin = now_;
  if (const auto found = ended_of_caller_.find(caller.name()); found != ended_of_caller_.end()) {
    begin = std::max(begin, found->second->first);
    const auto ended = found->second;
    ended_of_caller_.erase(found);
    ended_.erase(ended);
  }
  const Order order = BeginTurn(queue, begin);
  const auto place = queues_.emplace(order, std::move(queue)).first;
  // The queue's copy of the caller keeps the name.
  of_caller_.emplace(place->second.caller.name(), place);
}

CallerQueues::Order CallerQueues::BeginTurn(Queue& queue, double begin) {
  const std::vector<Request>& message = queue.messages.front();
  queue.left_of_turn = 0;
  queue.bytes_of_turn = 0;
  for (std::size_t i = queue.taken;
       i < message.size() && queue.left_of_turn < kTurn && queue.bytes_of_turn < kTurnBytes; ++i) {
    ++queue.left_of_turn;
    queue.bytes_of_turn += WeightOf(message[i]);
  }
  return {begin + static_cast<double>(queue.bytes_of_turn), added_++};
}

std::vector<Request> CallerQueues::Take(std::size_t most, std::uint64_t most_bytes,
                                        std::vector<Request>* abandoned) {
  std::vector<Request> requests;
  std::uint64_t bytes = 0;  // of arrays and answers
  std::uint64_t weight = 0;
  while (!queues_.empty() && requests.size() < most &&
         (current_ || (bytes < most_bytes && MayBegin(weight)))) {
    if (!current_) current_ = queues_.begin();
    Queue& queue = (*current_)->second;
    Request& next = queue.messages.front()[queue.taken];
    if (next.is_about_table()) {
      --table_requests_;
      --queue.table_requests;
    }
    --size_;
    if (abandoned != nullptr && next.is_abandoned()) {
      abandoned->push_back(std::move(next));
    } else {
      bytes += next.bytes() + next.answer_bytes();
      weight += WeightOf(next);
      requests.push_back(std::move(next));
    }
    ++queue.taken;
    if (--queue.left_of_turn == 0) EndTurn();
  }
  return requests;
}

bool CallerQueues::MayBegin(std::uint64_t weight) const {
  return weight == 0 || queues_.begin()->second.bytes_of_turn <= kMuchLarger * weight;
}

void CallerQueues::EndTurn() {
  const double callers = static_cast<double>(queues_.size());
  auto ended = queues_.extract(*current_);
  current_.reset();
  Queue& queue = ended.mapped();
  now_ += static_cast<double>(queue.bytes_of_turn) / callers;
  if (queue.taken == queue.messages.front().size()) {
    queue.messages.pop_front();
    queue.taken = 0;
  }
  if (queue.messages.empty()) {
    of_caller_.erase(queue.caller.name());
    const auto place = ended_.emplace(ended.key().first, queue.caller.name());
    ended_of_caller_.emplace(place->second, place);
    return ForgetPast();
  }
  const auto caller = of_caller_.find(queue.caller.name());
  ended.key() = BeginTurn(queue, ended.key().first);
  caller->second = queues_.insert(std::move(ended)).position;
  ForgetPast();
}

void CallerQueues::ForgetPast() {
  // Without any caller here, the clock restarts.
  if (queues_.empty()) now_ = std::numeric_limits<double>::infinity();
  while (!ended_.empty() && ended_.begin()->first <= now_) {
    ended_of_caller_.erase(ended_.begin()->second);
    ended_.erase(ended_.begin());
  }
  if (queues_.empty()) now_ = 0;
}

}  // namespace slotwise
