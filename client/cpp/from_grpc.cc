#include "client/cpp/from_grpc.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <system_error>

#include "wire/retry_after.h"

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
         code == grpc::StatusCode::DEADLINE_EXCEEDED || ServerReceivesTooMuch(status) ||
         RetryAfter(status).count() > 0;
}

// No server of ours sends details of its own, so they have room for the time, as the metadata write it.
std::chrono::milliseconds RetryAfter(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return {};
  const std::string details = status.error_details();
  std::int32_t time = 0;
  const auto [end, error] = std::from_chars(details.data(), details.data() + details.size(), time);
  const bool is_time = error == std::errc() && end == details.data() + details.size() && time > 0;
  return std::chrono::milliseconds(is_time ? time : 0);
}

grpc::Status WithRetryAfter(const grpc::Status& status, std::chrono::milliseconds time) {
  return {status.error_code(), status.error_message(), time.count() > 0 ? std::to_string(time.count()) : ""};
}

grpc::Status WithRetryAfter(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return status;
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto said = metadata.find(kRetryAfterMetadata);
  return {status.error_code(), status.error_message(),
          said == metadata.end() ? std::string() : std::string(said->second.data(), said->second.size())};
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
      if (RetryAfter(status).count() > 0) return ResourceExhausted(no_answer, RetryAfter(status));
      return ResourceExhausted(details);
    case grpc::StatusCode::UNAUTHENTICATED:
      return Unauthenticated(details);
    case grpc::StatusCode::PERMISSION_DENIED:
      return PermissionDenied(details);
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
