// AccessControl says who a caller is. Every call of every door asks it, once; what he may do is then
// his Principal's.
//
// Files of tokens are looked at every second, and read again when they change; one that cannot be read any
// more leaves the tokens as they were, and is logged. Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_ACCESS_ACCESS_CONTROL_H_
#define SLOTWISE_SERVER_ACCESS_ACCESS_CONTROL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
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

struct RefusedAccessCounts {
  std::uint64_t unauthenticated = 0;
  std::uint64_t permission_denied = 0;
};

class AccessControl {
 public:
  // Without principals everybody may do everything. INVALID_ARGUMENT, in one sentence, if a file of tokens is
  // not right, or two principals have a token in common.
  static Result<std::unique_ptr<AccessControl>> Make(
      std::vector<KnownPrincipal> known, std::chrono::milliseconds look_every = std::chrono::seconds(1));
  ~AccessControl();
  AccessControl(const AccessControl&) = delete;
  AccessControl& operator=(const AccessControl&) = delete;

  // Returns true if everybody may do everything.
  bool open() const { return known_.empty(); }

  // Returns who has the token that the field `authorization` of a call has ("Bearer TOKEN"), if there is such
  // a field; else whom a certificate that the connection has proven names. Null if everybody may do
  // everything; with a refusal, which is counted, if it is nobody.
  PrincipalPtr Authenticate(std::string_view authorization,
                            std::span<const std::string> certificate_names) const;
  // The same of a bare token.
  PrincipalPtr AuthenticateToken(std::string_view token) const;

  // The same of HTTP's field, whose scheme may be Basic as well (RFC 7617), where the password is the token
  // and the name is anybody's: a browser asks people for these.
  PrincipalPtr AuthenticateHttp(std::string_view authorization) const;

  RefusedAccessCounts Refused() const;

 private:
  struct Known {
    KnownPrincipal options;
    PrincipalPtr principal;
    std::vector<TokenDigest> tokens = {};
    std::string stamp = {};  // which file it was, and when it was written
  };

  explicit AccessControl(std::vector<KnownPrincipal> known);
  Status ReadAll();
  void Watch(std::chrono::milliseconds look_every);
  void ReadWhatChanged();
  PrincipalPtr Nobody(std::string why) const;

  const std::shared_ptr<RefusedAccess> refused_ = std::make_shared<RefusedAccess>();
  mutable std::mutex mutex_;
  std::vector<Known>
      known_;  // how many, and all but tokens and stamps, never changes; those: guarded by mutex_
  std::condition_variable stop_changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread watch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_ACCESS_CONTROL_H_
