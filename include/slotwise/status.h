// A Status says in words what the caller did wrong. Broken hardware is an exception instead.
//
// A `Status` is either OK or a code and a message that names the offending field and value. A `Result<T>` is
// a T or the Status that says why there is no T. The codes have gRPC's names; server/rpc translates them in
// one place. A `Reason` says the same more precisely, for programs: code decides by an error's code or
// reason, and never by its words.
//
// A server that has no room now, but will have, answers kResourceExhausted and says when to try again
// (`retry_after`). Without `retry_after`, the server would refuse the same request again.
// Thread-safety: plain values.
#ifndef SLOTWISE_STATUS_H_
#define SLOTWISE_STATUS_H_

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "slotwise/reason.h"

namespace slotwise {

enum class StatusCode {
  kOk,
  kInvalidArgument,     // the request can never succeed as it stands
  kNotFound,            // no such table
  kAlreadyExists,       // a table of that name, with other options
  kFailedPrecondition,  // legal, but not in this state
  kResourceExhausted,   // a full table, no memory, too large a batch; with retry_after(): busy, try again
  kDeadlineExceeded,    // something that the request needs did not come in time
  kUnavailable,         // the rank is gone, starting or stopping: try again, here or at another rank
  kCancelled,           // the caller no longer wants the answer
  kUnauthenticated,     // the server does not know who calls
  kPermissionDenied,    // the caller lacks the right
  kDataLoss,            // steps that this client saw acknowledged are gone (clients only)
  kInternal,            // a bug in Slotwise
};

// Returns the code's name as gRPC writes it: "INVALID_ARGUMENT".
std::string_view ToString(StatusCode code);

// Returns the reason of a status that names none; kNone for kOk.
Reason DefaultReason(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message, std::chrono::milliseconds retry_after = {})
      : code_(code),
        reason_(retry_after.count() > 0 ? Reason::kBusy : DefaultReason(code)),
        message_(std::move(message)),
        retry_after_(retry_after) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  Reason reason() const { return reason_; }
  const std::string& message() const { return message_; }
  // Returns how long to wait before the same request is sent again; 0 if that may never help.
  std::chrono::milliseconds retry_after() const { return retry_after_; }

  // Return this status with another reason, or with another message.
  Status Because(Reason reason) && {
    reason_ = reason;
    return std::move(*this);
  }
  Status InWords(std::string message) const {
    Status same = *this;
    same.message_ = std::move(message);
    return same;
  }

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  Reason reason_ = Reason::kNone;
  std::string message_;
  std::chrono::milliseconds retry_after_{0};
};

// These make a Status with the first reason of its code, or with kBusy if `retry_after` is set.
Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status AlreadyExists(std::string message);
Status FailedPrecondition(std::string message);
// `retry_after` says when there will be room again; 0 if there will be none for this request.
Status ResourceExhausted(std::string message, std::chrono::milliseconds retry_after = {});
Status DeadlineExceeded(std::string message);
Status Unavailable(std::string message);
Status Cancelled(std::string message);
Status DataLoss(std::string message);
Status Unauthenticated(std::string message);
Status PermissionDenied(std::string message);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : value_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(value_); }

  // Returns OK if there is a value.
  Status status() const { return ok() ? Status() : std::get<Status>(value_); }

  // REQUIRES: ok().
  T& operator*() { return std::get<T>(value_); }
  const T& operator*() const { return std::get<T>(value_); }
  T* operator->() { return &std::get<T>(value_); }
  const T* operator->() const { return &std::get<T>(value_); }

 private:
  std::variant<Status, T> value_;
};

}  // namespace slotwise

#endif  // SLOTWISE_STATUS_H_
