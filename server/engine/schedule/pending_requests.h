// PendingRequests: the requests that this rank has proposed and not answered.
//
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_PENDING_REQUESTS_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_PENDING_REQUESTS_H_

#include <cstddef>
#include <unordered_map>
#include <utility>

#include "server/engine/schedule/request.h"

namespace slotwise {

class PendingRequests {
 public:
  // Keeps a request, and returns its ticket's number. Numbers count from 1.
  TicketNumber Add(Request request) {
    requests_.emplace(++last_, std::move(request));
    return last_;
  }

  // Every call below REQUIRES the ticket of a pending request, and Get a request of this kind.
  template <class Kind>
  Kind& Get(TicketNumber ticket) {
    return requests_.at(ticket).As<Kind>();
  }
  Request& At(TicketNumber ticket) { return requests_.at(ticket); }
  BatchPart& BatchOf(TicketNumber ticket) { return *requests_.at(ticket).batch(); }

  // Removes and returns the request, so that it can be answered.
  Request Take(TicketNumber ticket) { return std::move(requests_.extract(ticket).mapped()); }

  bool empty() const { return requests_.empty(); }
  std::size_t size() const { return requests_.size(); }

 private:
  std::unordered_map<TicketNumber, Request> requests_;
  TicketNumber last_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_PENDING_REQUESTS_H_
