#include "client/cpp/from_grpc.h"

#include <array>
#include <cstdio>

namespace slotwise::client {
namespace {

std::string Seconds(std::chrono::milliseconds time) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g s", static_cast<double>(time.count()) / 1e3);
  return text.data();
}

// HTTP/2's ENHANCE_YOUR_CALM, in the words of this side's gRPC: no server writes them.
bool ServerReceivesTooMuch(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         status.error_message().find("RST_STREAM with error code 11") != std::string::npos;
}

}  // namespace

bool IsWorthAnotherTry(const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::CANCELLED ||
         code == grpc::StatusCode::DEADLINE_EXCEEDED || ServerReceivesTooMuch(status);
}

Status FromGrpc(const grpc::Status& status, const std::string& address, std::chrono::milliseconds timeout) {
  const std::string& details = status.error_message();
  const std::string no_answer = "no answer from " + address + " within " + Seconds(timeout) + ": " + details;
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return DeadlineExceeded(no_answer);
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return Unavailable(no_answer);
    case grpc::StatusCode::UNIMPLEMENTED:
      return FailedPrecondition(address + " is no Slotwise server of this version: " + details);
    case grpc::StatusCode::INVALID_ARGUMENT:
      return InvalidArgument(details);
    case grpc::StatusCode::NOT_FOUND:
      return NotFound(details);
    case grpc::StatusCode::ALREADY_EXISTS:
      return AlreadyExists(details);
    case grpc::StatusCode::FAILED_PRECONDITION:
      return FailedPrecondition(details);
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      if (ServerReceivesTooMuch(status)) return Unavailable(no_answer);
      return ResourceExhausted(details);
    case grpc::StatusCode::DATA_LOSS:
      return DataLoss(details);
    default:
      return {StatusCode::kInternal, NameOf(status.error_code()) + " from " + address + ": " + details};
  }
}

std::string NameOf(grpc::StatusCode code) {
  static constexpr std::array<const char*, 17> kNames{
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto number = static_cast<std::size_t>(code);
  return number < kNames.size() ? kNames[number] : "code " + std::to_string(number);
}

}  // namespace slotwise::client
