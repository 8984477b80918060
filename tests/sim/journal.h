// Journal: records every request that a client sent, and its end.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_JOURNAL_H_
#define SLOTWISE_TESTS_SIM_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/asks.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

// The required end of a request.
struct Expected {
  StatusCode code = StatusCode::kOk;
  Reply reply = {};
  std::vector<float> pooled = {};
};

struct Sent {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::uint64_t kStillCharged = std::numeric_limits<std::uint64_t>::max();

  std::size_t id = 0;
  int rank = 0;
  Ask ask = {};
  Time at = 0;
  bool accepted = false;                 // by the rank's request queue
  bool waits = false;                    // came as a part that waits for others' parts
  std::uint64_t found_waiting = kNever;  // the decision that found it to be such a part only later
  TicketNumber ticket = 0;               // set once it is accepted
  bool proposed = false;
  int answers = 0;
  Status answer = {};
  std::optional<Expected> expected = {};
  // The fields below are for a message of a call (shared_buffers.h), which is answered with the others:
  bool by_call = false;
  bool unheard = false;      // no client hears how it ends
  bool abandoned = false;    // it was queued when its caller left, and is never proposed
  bool let_go = false;       // no charge for it is left
  bool held = false;         // its answer may still be held
  bool reads_values = true;  // its client can check the values
  // Returns why the engine's request is not the call's, or sets the ask to what the request contains.
  std::function<std::string(const Request&, Ask&)> on_taken = nullptr;
  std::uint64_t released = kStillCharged;  // the decision from which on its arrays may be freed

  std::string Describe() const {
    return "request " + std::to_string(id) + " at rank " + std::to_string(rank) + " (" + ask.Describe() + ")";
  }
};

class Journal {
 public:
  explicit Journal(int ranks)
      : accepted_(static_cast<std::size_t>(ranks)),
        taken_(static_cast<std::size_t>(ranks)),
        waiting_(static_cast<std::size_t>(ranks)) {}

  Sent& Add(int rank, Ask ask, Time at) {
    Sent& sent = sent_.emplace_back();
    sent.id = sent_.size() - 1;
    sent.rank = rank;
    sent.ask = std::move(ask);
    sent.at = at;
    return sent;
  }
  void Accept(Sent& sent) {
    accepted_[static_cast<std::size_t>(sent.rank)].push_back(sent.id);
    waiting_[static_cast<std::size_t>(sent.rank)][sent.ask.caller].push_back(sent.id);
    sent.accepted = true;
  }
  // The rank takes the caller's oldest request out of its request queue, and numbers its tickets in this
  // order. Returns the request; null if there is none.
  Sent* Take(int rank, const std::string& caller) {
    std::deque<std::size_t>& of_caller = waiting_[static_cast<std::size_t>(rank)][caller];
    while (!of_caller.empty() && sent_[of_caller.front()].abandoned) of_caller.pop_front();
    if (of_caller.empty()) return nullptr;
    std::vector<std::size_t>& of_rank = taken_[static_cast<std::size_t>(rank)];
    Sent& sent = sent_[of_caller.front()];
    of_caller.pop_front();
    of_rank.push_back(sent.id);
    sent.ticket = of_rank.size();
    return &sent;
  }

  Sent& At(std::size_t id) { return sent_[id]; }
  // Returns null if no request has that ticket.
  Sent* Find(int rank, TicketNumber ticket) {
    const std::vector<std::size_t>& of_rank = taken_[static_cast<std::size_t>(rank)];
    return ticket == 0 || ticket > of_rank.size() ? nullptr : &sent_[of_rank[ticket - 1]];
  }
  std::deque<Sent>& all() { return sent_; }
  const std::vector<std::size_t>& accepted(int rank) const {
    return accepted_[static_cast<std::size_t>(rank)];
  }

 private:
  std::deque<Sent> sent_;
  std::vector<std::vector<std::size_t>> accepted_;                       // [ranks] ids in order of arrival
  std::vector<std::vector<std::size_t>> taken_;                          // [ranks] ids by ticket
  std::vector<std::map<std::string, std::deque<std::size_t>>> waiting_;  // [ranks] ids by caller
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_JOURNAL_H_
