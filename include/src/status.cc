#include "slotwise/status.h"

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace slotwise {

std::string_view ToString(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

Reason DefaultReason(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return Reason::kNone;
    case StatusCode::kInvalidArgument:
      return Reason::kInvalidValue;
    case StatusCode::kNotFound:
      return Reason::kNotFound;
    case StatusCode::kAlreadyExists:
      return Reason::kAlreadyExists;
    case StatusCode::kFailedPrecondition:
      return Reason::kWrongState;
    case StatusCode::kResourceExhausted:
      return Reason::kNoRoom;
    case StatusCode::kDeadlineExceeded:
      return Reason::kTooLate;
    case StatusCode::kUnavailable:
      return Reason::kNoAnswer;
    case StatusCode::kCancelled:
      return Reason::kCancelled;
    case StatusCode::kUnauthenticated:
      return Reason::kUnknownCaller;
    case StatusCode::kPermissionDenied:
      return Reason::kNoRight;
    case StatusCode::kDataLoss:
      return Reason::kDamaged;
    case StatusCode::kInternal:
      return Reason::kBug;
  }
  return Reason::kNone;
}

Status InvalidArgument(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status AlreadyExists(std::string message) { return {StatusCode::kAlreadyExists, std::move(message)}; }
Status FailedPrecondition(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
Status ResourceExhausted(std::string message, std::chrono::milliseconds retry_after) {
  return {StatusCode::kResourceExhausted, std::move(message), retry_after};
}
Status DeadlineExceeded(std::string message) { return {StatusCode::kDeadlineExceeded, std::move(message)}; }
Status Unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
Status Unauthenticated(std::string message) { return {StatusCode::kUnauthenticated, std::move(message)}; }
Status PermissionDenied(std::string message) { return {StatusCode::kPermissionDenied, std::move(message)}; }
Status DataLoss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
Status Cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }

}  // namespace slotwise
