// Caller: the sender of a call. A Caller is made once a call and travels with every request of the call, so
// that the request queue can serve callers in turns, log lines can name them, and no work is done for a
// caller who has cancelled the call or whose deadline has passed. It also has the call's times and trace. A
// caller is named by the address of the connection's peer, and, where the server authenticates callers, by
// the principal of the token or certificate.
//
// Thread-safety: safe from any thread; copies share all state.
#ifndef SLOTWISE_SERVER_ENGINE_CALLER_H_
#define SLOTWISE_SERVER_ENGINE_CALLER_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/access/principal.h"
#include "server/engine/call_times.h"

namespace slotwise {

class Caller {
 public:
  using Clock = std::chrono::steady_clock;
  // A longer address is cut.
  static constexpr std::size_t kMostCharacters = 128;

  // The server itself.
  Caller() = default;
  // A client. From `deadline` on, gone() is true.
  explicit Caller(std::string_view name, Clock::time_point deadline = Clock::time_point::max(),
                  CallKind kind = CallKind::kOther, PrincipalPtr principal = nullptr,
                  std::string_view trace = {})
      : call_(std::make_shared<OfCall>(NameOf(name, principal.get()), deadline, kind, std::move(principal),
                                       trace)) {}

  std::string_view name() const { return is_server() ? std::string_view("the server") : call_->name; }
  // Returns the name for log lines: with the id of the call's trace, if the client has sent one.
  std::string label() const {
    std::string text(name());
    if (!is_server() && !call_->trace.empty()) text.append(", trace ").append(call_->trace);
    return text;
  }
  bool is_server() const { return call_ == nullptr; }
  // Returns the caller's principal; null if the caller may do everything.
  const Principal* principal() const { return is_server() ? nullptr : call_->principal.get(); }
  // REQUIRES: not is_server().
  CallTimes& times() const { return call_->times; }

  // Notes that the caller wants no answer any more. REQUIRES: not is_server().
  void Leave() const { call_->gone.store(true, std::memory_order_relaxed); }
  bool gone() const { return late() || (!is_server() && call_->gone.load(std::memory_order_relaxed)); }

  // Returns whether the caller is gone because its deadline has passed.
  bool late() const {
    return !is_server() && call_->deadline != Clock::time_point::max() && Clock::now() >= call_->deadline;
  }

  // Returns whether the deadline passes so soon that an answer now just reaches the caller in time.
  bool nearly_late() const {
    if (is_server() || call_->deadline == Clock::time_point::max()) return false;
    constexpr Clock::duration kOnTheWay = std::chrono::seconds(2);
    return Clock::now() >=
           call_->deadline - std::min(kOnTheWay, (call_->deadline - call_->times.begin()) / 4);
  }

  friend bool operator==(const Caller& one, const Caller& other) { return one.name() == other.name(); }

 private:
  // "ADDRESS", or "ADDRESS, NAME".
  static std::string NameOf(std::string_view address, const Principal* principal) {
    std::string name(address.substr(0, kMostCharacters));
    if (principal != nullptr && !principal->name.empty()) name += ", " + principal->name;
    return name;
  }

  struct OfCall {
    OfCall(std::string caller, Clock::time_point its_deadline, CallKind kind, PrincipalPtr its_principal,
           std::string_view its_trace)
        : name(std::move(caller)),
          trace(its_trace),
          deadline(its_deadline),
          principal(std::move(its_principal)),
          times(kind) {}
    const std::string name;
    const std::string trace;  // its id; empty: none
    const Clock::time_point deadline;
    const PrincipalPtr principal;
    std::atomic<bool> gone{false};
    CallTimes times;
  };
  std::shared_ptr<OfCall> call_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CALLER_H_
