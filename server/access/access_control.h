// AccessControl identifies callers. Every call of every transport asks it once; the caller's Principal then
// decides what the call may do.
//
// Token files are checked every second. A file is read again when it has changed and is the same at the next
// check. A bad file leaves its tokens as they were, is logged, and is read at every check until it is right.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_ACCESS_ACCESS_CONTROL_H_
#define SLOTWISE_SERVER_ACCESS_ACCESS_CONTROL_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/access/principal.h"
#include "server/access/token_file.h"
#include "slotwise/status.h"

namespace slotwise {

struct KnownPrincipal {
  std::string name;
  std::string token_file = {};        // empty: no token
  std::string certificate_name = {};  // empty: no certificate
  std::vector<Grant> grants = {};
};

// The error in the token file of a principal, which is named by its index.
struct TokenError {
  std::size_t principal = 0;
  std::string message = {};
};

struct RefusedAccessCounts {
  std::uint64_t unauthenticated = 0;
  std::uint64_t permission_denied = 0;
};

class AccessControl {
 public:
  // Without principals, everybody may do everything. `local_users` are admitted at Unix sockets besides the
  // user of this process. Returns null, with all reasons in `errors`, if a token file is bad or two
  // principals share a token.
  static std::unique_ptr<AccessControl> Make(std::vector<KnownPrincipal> known,
                                             std::vector<std::uint32_t> local_users,
                                             std::vector<TokenError>& errors,
                                             std::chrono::milliseconds look_every = std::chrono::seconds(1));
  // The same, but returns the first reason as INVALID_ARGUMENT, in one sentence.
  static Result<std::unique_ptr<AccessControl>> Make(
      std::vector<KnownPrincipal> known, std::vector<std::uint32_t> local_users = {},
      std::chrono::milliseconds look_every = std::chrono::seconds(1));
  ~AccessControl();
  AccessControl(const AccessControl&) = delete;
  AccessControl& operator=(const AccessControl&) = delete;

  // Returns whether everybody may do everything.
  bool open() const { return known_.empty(); }

  // Returns the principal of the token in a call's `authorization` field ("Bearer TOKEN"). Without that
  // field, returns the principal whose certificate name the connection has proven. Null if everybody may do
  // everything. If the caller is unknown, the result has a refusal, which is counted.
  PrincipalPtr Authenticate(std::string_view authorization,
                            std::span<const std::string> certificate_names) const;
  // The same for a bare token.
  PrincipalPtr AuthenticateToken(std::string_view token) const;

  // The same for HTTP's field. It may also have the scheme Basic (RFC 7617), because browsers ask people for
  // that; then the password is the token, and the user name is ignored.
  PrincipalPtr AuthenticateHttp(std::string_view authorization) const;

  // Returns whether the user at the other end of a Unix socket may present a token there. Counts a refusal if
  // not.
  bool LetsIn(std::uint32_t user) const;

  RefusedAccessCounts Refused() const;

 private:
  struct Known {
    KnownPrincipal options;
    PrincipalPtr principal;
    std::vector<TokenDigest> tokens = {};
    std::string stamp = {};    // identifies the file of the tokens, with its time of change
    std::string seen = {};     // the same for the file at the last check
    std::string trouble = {};  // why that file is bad, as logged; empty: it is right
  };

  AccessControl(std::vector<KnownPrincipal> known, std::vector<std::uint32_t> local_users);
  std::vector<TokenError> ReadAll();
  void Watch(std::chrono::milliseconds look_every);
  void ReadWhatChanged();
  // Reads a principal's file if it has changed, and is the same as at the last check: it may be half written.
  std::optional<Result<std::vector<TokenDigest>>> ReadIfChanged(Known& one) const;
  PrincipalPtr Unknown(std::string why) const;

  const std::vector<std::uint32_t> local_users_;
  const std::shared_ptr<RefusedAccess> refused_ = std::make_shared<RefusedAccess>();
  // Their number, names and principals never change. tokens_mutex_ guards their tokens; the other members
  // belong to the watching thread.
  std::vector<Known> known_;
  mutable std::shared_mutex tokens_mutex_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread watch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_ACCESS_CONTROL_H_
