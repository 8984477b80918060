// CallerQueues: requests that wait, in a queue for each caller. The callers take turns, each as often as its
// turns are small: so no caller waits behind all that another has sent, and no small request behind the
// large ones of many.
//
// A turn is one message of a caller's, or as much of a longer one as kTurn and kTurnBytes let it be; a
// caller's messages keep their order, and so do a message's requests. Turns come in the order of weighted
// fair queueing (Demers, Keshav and Shenker 1989; Parekh and Gallager 1993): if all callers who wait were
// served at once, each at an equal share of the bytes, a turn would end at some time on a clock that counts
// the bytes each of them gets. The turn that would end first comes first. A caller's next turn begins, on
// that clock, where its last one ended, or now if that is later; so a caller that has nothing here is
// remembered until then, and no longer. Calls cost time by the requests that they move, and the logarithm of
// the callers.
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
  // A turn ends with the request that brings it to so many bytes.
  static constexpr std::uint64_t kTurnBytes = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kMuchLarger = 8;
  // What a request counts as beside its arrays and its answer: in the time that a round takes by itself, a
  // large one serves about as many bytes. And what a request about a whole table counts as.
  static constexpr std::uint64_t kRequestBytes = 32 << 10;
  static constexpr std::uint64_t kTableBytes = std::uint64_t{1} << 20;

  bool empty() const { return queues_.empty(); }
  std::size_t size() const { return size_; }  // requests

  // Returns whether requests of the caller's wait.
  bool Has(const Caller& caller) const { return of_caller_.contains(caller.name()); }
  // Return how many requests about whole tables wait: the caller's, and everybody's.
  std::size_t table_requests_of(const Caller& caller) const;
  std::size_t table_requests() const { return table_requests_; }

  // Adds a message of the caller's: one request or several.
  void Add(const Caller& caller, std::vector<Request> message);

  // Takes the next requests out, at most `most`, and begins no turn once their arrays and answers have
  // `most_bytes`, nor one that is more than kMuchLarger times as large as what was taken: small requests need
  // not wait for a round with it. A turn that is not over goes on with the next call. What no caller needs
  // any more goes to `abandoned`, if that is given, and counts as nothing.
  std::vector<Request> Take(std::size_t most,
                            std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max(),
                            std::vector<Request>* abandoned = nullptr);

  // Returns what a request counts as.
  static std::uint64_t WeightOf(const Request& request);

 private:
  // When a turn would end, on the clock of shares; of two, the one that was added first is first.
  using Order = std::pair<double, std::uint64_t>;
  struct Queue {
    Caller caller;
    std::deque<std::vector<Request>> messages;  // none is empty
    std::size_t taken = 0;                      // requests of the first message
    std::size_t left_of_turn = 0;               // requests of the turn that are here
    std::uint64_t bytes_of_turn = 0;
    std::size_t table_requests = 0;  // of those that wait, about whole tables
  };
  using Queues = std::map<Order, Queue>;

  // Whether the first queue's turn may begin beside requests that count as `weight`.
  bool MayBegin(std::uint64_t weight) const;
  // Says what the queue's next turn is, and returns when it would end if it began then.
  Order BeginTurn(Queue& queue, double begin);
  // Ends the current turn.
  void EndTurn();
  // Forgets callers who have nothing here and would begin now.
  void ForgetPast();

  Queues queues_;
  std::optional<Queues::iterator> current_;  // whose turn has begun
  double now_ = 0;                           // on the clock of shares
  // When the last turns of callers ended who have nothing here, if that is later than now; and by name.
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
