// AccessControl says who a caller is. Every call of every transport asks it, once; what he may do is then
// his Principal's.
//
// Files of tokens are looked at every second, and read again when they have changed and stay as they are
// until the next look. One that is not right leaves the tokens as they were, is logged, and is read at
// every look until it is. Thread-safety: safe from any thread.
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

// What is wrong with the file of tokens of a principal, by the principal's index.
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
  // Without principals everybody may do everything. `local_users` are let in at Unix sockets, beside the user
  // that this process runs as. Null, with all reasons in `errors`, if a file of tokens is not right, or two
  // principals have a token in common.
  static std::unique_ptr<AccessControl> Make(std::vector<KnownPrincipal> known,
                                             std::vector<std::uint32_t> local_users,
                                             std::vector<TokenError>& errors,
                                             std::chrono::milliseconds look_every = std::chrono::seconds(1));
  // The same, where the first reason is enough, as INVALID_ARGUMENT in one sentence.
  static Result<std::unique_ptr<AccessControl>> Make(
      std::vector<KnownPrincipal> known, std::vector<std::uint32_t> local_users = {},
      std::chrono::milliseconds look_every = std::chrono::seconds(1));
  ~AccessControl();
  AccessControl(const AccessControl&) = delete;
  AccessControl& operator=(const AccessControl&) = delete;

  // Returns true if everybody may do everything.
  bool open() const { return known_.empty(); }

  // Returns who has the token that the field `authorization` of a call has ("Bearer TOKEN"), if there is such
  // a field; else whom a certificate that the connection has proven names. Null if everybody may do
  // everything; with a refusal, which is counted, if the caller is unknown.
  PrincipalPtr Authenticate(std::string_view authorization,
                            std::span<const std::string> certificate_names) const;
  // The same of a bare token.
  PrincipalPtr AuthenticateToken(std::string_view token) const;

  // The same of HTTP's field, whose scheme may be Basic as well (RFC 7617), where the password is the token
  // and the name is anybody's: a browser asks people for these.
  PrincipalPtr AuthenticateHttp(std::string_view authorization) const;

  // Returns true if the user at the other end of a Unix socket may say there who he is. Counts him as refused
  // if not.
  bool LetsIn(std::uint32_t user) const;

  RefusedAccessCounts Refused() const;

 private:
  struct Known {
    KnownPrincipal options;
    PrincipalPtr principal;
    std::vector<TokenDigest> tokens = {};
    std::string stamp = {};    // which file the tokens are from, and when it was changed
    std::string seen = {};     // the same of the file that was there at the last look
    std::string trouble = {};  // why that file is not right, as the log said; empty: it is
  };

  AccessControl(std::vector<KnownPrincipal> known, std::vector<std::uint32_t> local_users);
  std::vector<TokenError> ReadAll();
  void Watch(std::chrono::milliseconds look_every);
  void ReadWhatChanged();
  // Reads the file of one that has changed, and is the same as at the last look: somebody may be writing it.
  std::optional<Result<std::vector<TokenDigest>>> ReadIfChanged(Known& one) const;
  PrincipalPtr Unknown(std::string why) const;

  const std::vector<std::uint32_t> local_users_;
  const std::shared_ptr<RefusedAccess> refused_ = std::make_shared<RefusedAccess>();
  // Their number, names and principals never change. Tokens are guarded by tokens_mutex_; the rest of each
  // is the watching thread's.
  std::vector<Known> known_;
  mutable std::shared_mutex tokens_mutex_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread watch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_ACCESS_CONTROL_H_
