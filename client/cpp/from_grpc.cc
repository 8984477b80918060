#include "client/cpp/from_grpc.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "wire/error_details.h"
#include "wire/retry_after.h"
#include "wire/status_code.h"

namespace slotwise::client {
namespace {

std::string Seconds(std::chrono::milliseconds time) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g s", static_cast<double>(time.count()) / 1e3);
  return text.data();
}

// Returns the name of any gRPC code as gRPC writes it.
std::string NameOf(std::uint32_t code) {
  static constexpr std::array<const char*, 17> kNames{
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code < kNames.size() ? kNames[code] : "code " + std::to_string(code);
}

// Returns the time after which a busy server wants the next try; 0: none, or an invalid one.
std::chrono::milliseconds RetryAfter(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto said = metadata.find(kRetryAfterMetadata);
  if (said == metadata.end()) return {};
  std::int32_t time = 0;
  const auto [end, error] = std::from_chars(said->second.begin(), said->second.end(), time);
  const bool is_time = error == std::errc() && end == said->second.end() && time > 0;
  return std::chrono::milliseconds(is_time ? time : 0);
}

// Returns the status of an answer of a server at `address`, by the number of gRPC's code. With Reason::kNone
// the status has no reason.
Status AnswerOf(std::uint32_t number, const std::string& words, std::chrono::milliseconds retry_after,
                Reason reason, const std::string& address) {
  if (number == static_cast<std::uint32_t>(grpc::StatusCode::UNIMPLEMENTED)) {
    return FailedPrecondition(address + " is no Slotwise server of this version: " + words)
        .Because(Reason::kOtherVersion);
  }
  const StatusCode code = FromWireCode(number);
  if (code == StatusCode::kInternal) return {code, NameOf(number) + " from " + address + ": " + words};
  const bool has_no_room = code == StatusCode::kResourceExhausted;
  return Status(code, words, has_no_room ? retry_after : std::chrono::milliseconds()).Because(reason);
}

}  // namespace

Status AnswerOf(const v1::DataReply& reply, const std::string& address) {
  const Reason said = FromProto(reply.reason());
  return AnswerOf(reply.code(), reply.message(), std::chrono::milliseconds(reply.retry_after_ms()),
                  said == Reason::kNone ? DefaultReason(FromWireCode(reply.code())) : said, address);
}

Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context, const std::string& address,
                bool gives_reasons) {
  if (status.ok()) return {};
  const auto number = static_cast<std::uint32_t>(status.error_code());
  Reason reason = ReasonIn(status.error_details());
  // An older server gives no reasons, so the client cannot tell what the server's gRPC has refused.
  if (reason == Reason::kNone && !gives_reasons && FromWireCode(number) == StatusCode::kResourceExhausted)
    reason = DefaultReason(StatusCode::kResourceExhausted);
  return AnswerOf(number, status.error_message(), RetryAfter(context), reason, address);
}

bool IsOwnDeadline(const Status& status) {
  return status.code() == StatusCode::kDeadlineExceeded && status.reason() == Reason::kNone;
}

bool IsWorthAnotherTry(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded:
      return true;
    case StatusCode::kResourceExhausted:
      return status.retry_after().count() > 0 || status.reason() == Reason::kNone;
    default:
      return false;
  }
}

Status ForCaller(const Status& status, const std::string& address, std::chrono::milliseconds timeout) {
  const Reason reason = status.reason();
  if (!IsWorthAnotherTry(status)) {
    return reason == Reason::kNone ? Status(status).Because(DefaultReason(status.code())) : status;
  }
  const std::string no_answer =
      "no answer from " + address + " within " + Seconds(timeout) + ": " + status.message();
  if (status.code() == StatusCode::kDeadlineExceeded || status.retry_after().count() > 0) {
    return reason == Reason::kNone ? Status(status.code(), no_answer, status.retry_after())
                                   : status.InWords(no_answer);
  }
  const bool says_why = status.code() == StatusCode::kUnavailable && reason != Reason::kNone;
  return Unavailable(no_answer).Because(says_why ? reason : Reason::kNoAnswer);
}

}  // namespace slotwise::client
