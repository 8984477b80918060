// CallerQueues: requests that wait, in a queue for each caller. The callers take turns, so nobody waits
// behind all that another has sent.
//
// A turn is one message of a caller's, or kTurn requests of a longer one; a caller's messages keep their
// order, and so do a message's requests. There is a queue only for a caller who has requests here. Calls cost
// time by the requests that they move.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_CALLER_QUEUES_H_
#define SLOTWISE_SERVER_ENGINE_CALLER_QUEUES_H_

#include <cstddef>
#include <deque>
#include <list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/engine/caller.h"
#include "server/engine/request.h"

namespace slotwise {

class CallerQueues {
 public:
  static constexpr std::size_t kTurn = 32;

  bool empty() const { return turns_.empty(); }
  std::size_t size() const { return size_; }  // requests

  // Return how many requests about whole tables wait: the caller's, and everybody's.
  std::size_t table_requests_of(const Caller& caller) const;
  std::size_t table_requests() const { return table_requests_; }

  // Adds a message of the caller's: one request or several.
  void Add(const Caller& caller, std::vector<Request> message);

  // Takes the next requests out, at most `most`. A turn that is not over goes on with the next call.
  std::vector<Request> Take(std::size_t most);

 private:
  struct Queue {
    Caller caller;
    std::deque<std::vector<Request>> messages;  // none is empty
    std::size_t taken = 0;                      // requests of the first message
    std::size_t of_turn = 0;                    // requests that this turn has taken
    std::size_t table_requests = 0;             // of those that wait, about whole tables

    bool over() const { return of_turn == kTurn || taken == messages.front().size(); }
  };

  // Ends the turn of the first queue.
  void EndTurn();

  std::list<Queue> turns_;  // the next turn's first
  std::size_t size_ = 0;
  std::size_t table_requests_ = 0;
  // The keys are the names of the queues' callers.
  std::unordered_map<std::string_view, std::list<Queue>::iterator> of_caller_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CALLER_QUEUES_H_
