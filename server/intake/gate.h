// Gate: every call of every transport passes it. The gate authenticates callers, is closed while the server
// starts, and counts running and finished calls. Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_INTAKE_GATE_H_
#define SLOTWISE_SERVER_INTAKE_GATE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "server/access/access_control.h"
#include "server/engine/caller.h"
#include "server/intake/call_stats.h"
#include "slotwise/status.h"

namespace slotwise {

class Gate {
 public:
  // `access` outlives the gate. Null: every caller may do everything.
  explicit Gate(const AccessControl* access = nullptr) : access_(access) {}

  // Returns the principal of a caller (access_control.h).
  PrincipalPtr Authenticate(std::string_view authorization,
                            std::span<const std::string> certificate_names) const {
    return access_ == nullptr ? nullptr : access_->Authenticate(authorization, certificate_names);
  }
  // Does the same for a bare token; empty: none.
  PrincipalPtr AuthenticateToken(std::string_view token) const {
    return access_ == nullptr ? nullptr : access_->AuthenticateToken(token);
  }
  // Returns whether a user of this host may connect to a Unix socket.
  bool LetsIn(std::uint32_t user) const { return access_ == nullptr || access_->LetsIn(user); }
  // Returns whether callers have to authenticate.
  bool asks_who() const { return access_ != nullptr && !access_->open(); }

  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
  }

  // Counts a call as inside, whatever the result. Returns UNAUTHENTICATED if the caller is unknown, and
  // UNAVAILABLE before Open, because a call that comes before the server's tables exist must not be answered
  // NOT_FOUND.
  Status Enter(const Caller& caller) {
    const std::lock_guard lock(mutex_);
    ++inside_;
    const Principal* const who = caller.principal();
    if (who != nullptr && !who->refusal.ok()) return who->refusal;
    // A call from a transport that did not authenticate it is refused.
    if (who == nullptr && asks_who()) return Unauthenticated("the caller was not asked for a name");
    return open_ ? Status() : Unavailable("the server is starting: try again").Because(Reason::kStarting);
  }

  // Called when a call is over: the operating system has its reply, or its caller is gone.
  void Leave(const Caller& caller) {
    if (caller.times().kind() != CallKind::kOther) {
      const EndedCall ended = caller.times().End();
      counters_.Count(ended);
      LogCall(caller, ended);
    }
    Leave();
  }
  void Leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
  }

  std::uint64_t inside() const {
    const std::lock_guard lock(mutex_);
    return inside_;
  }
  const CallCounters& counters() const { return counters_; }

  // Waits until no call is inside, for `most` at the longest. Returns whether no call is inside.
  bool AwaitEmpty(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return empty_.wait_for(lock, most, [this] { return inside_ == 0; });
  }

 private:
  const AccessControl* const access_;
  CallCounters counters_;
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  bool open_ = false;
  std::uint64_t inside_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_GATE_H_
