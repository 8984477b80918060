#include "server/engine/caller_queues.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace slotwise {

std::size_t CallerQueues::table_requests_of(const Caller& caller) const {
  const auto found = of_caller_.find(caller.name());
  return found == of_caller_.end() ? 0 : found->second->table_requests;
}

void CallerQueues::Add(const Caller& caller, std::vector<Request> message) {
  if (message.empty()) return;
  auto found = of_caller_.find(caller.name());
  if (found == of_caller_.end()) {
    turns_.push_back({.caller = caller, .messages = {}});
    // The queue's copy of the caller keeps the name.
    found = of_caller_.emplace(turns_.back().caller.name(), std::prev(turns_.end())).first;
  }
  const auto about_tables = static_cast<std::size_t>(std::ranges::count_if(message, IsAboutTable));
  size_ += message.size();
  table_requests_ += about_tables;
  found->second->table_requests += about_tables;
  found->second->messages.push_back(std::move(message));
}

std::vector<Request> CallerQueues::Take(std::size_t most) {
  std::vector<Request> requests;
  while (!turns_.empty() && requests.size() < most) {
    Queue& queue = turns_.front();
    requests.push_back(std::move(queue.messages.front()[queue.taken]));
    if (IsAboutTable(requests.back())) {
      --table_requests_;
      --queue.table_requests;
    }
    --size_;
    ++queue.taken;
    ++queue.of_turn;
    if (queue.over()) EndTurn();
  }
  return requests;
}

void CallerQueues::EndTurn() {
  Queue& queue = turns_.front();
  queue.of_turn = 0;
  if (queue.taken == queue.messages.front().size()) {
    queue.messages.pop_front();
    queue.taken = 0;
  }
  if (queue.messages.empty()) {
    of_caller_.erase(queue.caller.name());
    turns_.pop_front();
  } else {
    turns_.splice(turns_.end(), turns_, turns_.begin());
  }
}

}  // namespace slotwise
