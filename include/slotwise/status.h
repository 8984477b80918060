// A Status says in words what the caller did wrong. Broken hardware is an exception instead.
//
// A `Status` is either OK or a code and a message that names the offending field and value. A `Result<T>` is
// a T or the Status that says why there is no T. The codes have gRPC's names; server/rpc translates them in
// one place.
// Thread-safety: plain values.
#ifndef SLOTWISE_STATUS_H_
#define SLOTWISE_STATUS_H_

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace slotwise {

enum class StatusCode {
  kOk,
  kInvalidArgument,     // the request can never succeed as it stands
  kNotFound,            // no such table
  kAlreadyExists,       // a table of that name, with other options
  kFailedPrecondition,  // legal, but not in this state
  kResourceExhausted,   // a full table, no memory, too large a batch
  kDeadlineExceeded,    // something that the request needs did not come in time
  kUnavailable,         // stopping, or a full inbox: try again, here or at another rank
  kCancelled,           // the caller no longer wants the answer
  kDataLoss,            // steps that this client saw acknowledged are gone (clients only)
  kInternal,            // a bug in Slotwise
};

// Returns the code's name as gRPC writes it: "INVALID_ARGUMENT".
std::string_view ToString(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status AlreadyExists(std::string message);
Status FailedPrecondition(std::string message);
Status ResourceExhausted(std::string message);
Status DeadlineExceeded(std::string message);
Status Unavailable(std::string message);
Status Cancelled(std::string message);
Status DataLoss(std::string message);

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
