// CallerQueues: the waiting requests, in a queue for each caller. Callers take turns, and smaller turns come
// more often: so no caller waits behind all requests of another, and no small request behind many large ones.
//
// A turn is one message of a caller, or a piece of a longer message, up to kTurn and kTurnBytes. A caller's
// messages keep their order, and so do a message's requests. Turns come in the order of weighted fair
// queueing (Demers, Keshav and Shenker 1989; Parekh and Gallager 1993): if all waiting callers were served at
// once, each with an equal share of the bytes, a turn would end at some time on a clock that counts the bytes
// that each caller gets. The turn that would end first comes first. A caller's next turn begins, on that
// clock, where its last one ended, or now if now is later; a caller without requests here is remembered until
// the end of its last turn. Calls take time in proportion to the requests that they move and the logarithm of
// the number of callers.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_CALLER_QUEUES_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_CALLER_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/engine/caller.h"
#include "server/engine/schedule/request.h"

namespace slotwise {

class CallerQueues {
 public:
  static constexpr std::size_t kTurn = 32;
  // A turn ends with the request that brings it to kTurnBytes.
  static constexpr std::uint64_t kTurnBytes = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kMuchLarger = 8;
  // A request counts as kRequestBytes beside its arrays and answer: a large round serves about as many bytes
  // in the time of an empty round. A request about a whole table counts as kTableBytes.
  static constexpr std::uint64_t kRequestBytes = 32 << 10;
  static constexpr std::uint64_t kTableBytes = std::uint64_t{1} << 20;

  bool empty() const { return queues_.empty(); }
  std::size_t size() const { return size_; }  // requests

  // Returns whether requests of the caller wait.
  bool Has(const Caller& caller) const { return of_caller_.contains(caller.name()); }
  // Return how many requests about whole tables wait: the caller's, and all callers'.
  std::size_t table_requests_of(const Caller& caller) const;
  std::size_t table_requests() const { return table_requests_; }

  // Adds a message of the caller, which has one request or several.
  void Add(const Caller& caller, std::vector<Request> message);

  // Takes out the next requests, at most `most`. Begins no new turn once the arrays and answers of the taken
  // requests have `most_bytes`, and no turn that is more than kMuchLarger times as large as the taken
  // requests, so that small requests need not share its round. The next call continues a turn that is not
  // over. If `abandoned` is given, requests that no caller needs any more go there and count as nothing.
  std::vector<Request> Take(std::size_t most,
                            std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max(),
                            std::vector<Request>* abandoned = nullptr);

  // Returns the bytes that a request counts as.
  static std::uint64_t WeightOf(const Request& request);

 private:
  // When a turn would end on the clock of shares, and a number that puts the earlier of two first.
  using Order = std::pair<double, std::uint64_t>;
  struct Queue {
    Caller caller;
    std::deque<std::vector<Request>> messages;  // none is empty
    std::size_t taken = 0;                      // requests taken of the first message
    std::size_t left_of_turn = 0;               // requests of the turn still here
    std::uint64_t bytes_of_turn = 0;
    std::size_t table_requests = 0;  // waiting requests about whole tables
  };
  using Queues = std::map<Order, Queue>;

  // Returns whether the first queue's turn may begin after requests that count as `weight`.
  bool MayBegin(std::uint64_t weight) const;
  // Sets the queue's next turn, and returns when the turn would end if it began at `begin`.
  Order BeginTurn(Queue& queue, double begin);
  // Ends the current turn.
  void EndTurn();
  // Forgets callers without requests here whose last turns have ended.
  void ForgetPast();

  Queues queues_;
  std::optional<Queues::iterator> current_;  // the queue whose turn has begun
  double now_ = 0;                           // on the clock of shares
  // For callers without requests here: when their last turns end, if later than now; and an index by name.
  std::multimap<double, std::string> ended_;
  std::unordered_map<std::string_view, std::multimap<double, std::string>::iterator> ended_of_caller_;
  std::uint64_t added_ = 0;
  std::size_t size_ = 0;
  std::size_t table_requests_ = 0;
  // The keys are the names of the queues' callers.
  std::unordered_map<std::string_view, Queues::iterator> of_caller_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_CALLER_QUEUES_H_
