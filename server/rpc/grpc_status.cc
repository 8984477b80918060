#include "server/rpc/grpc_status.h"

namespace slotwise {
namespace {

constexpr std::size_t kMaxMessage = 1024;
constexpr std::size_t kMaxQuoted = 80;

grpc::StatusCode ToGrpc(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return grpc::StatusCode::OK;
    case StatusCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case StatusCode::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case StatusCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case StatusCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case StatusCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case StatusCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case StatusCode::kDataLoss:
      return grpc::StatusCode::DATA_LOSS;
    case StatusCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case StatusCode::kInternal:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::UNKNOWN;
}

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  return {ToGrpc(status.code()), status.message().substr(0, kMaxMessage)};
}

std::string Quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxQuoted)) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      quoted += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    quoted.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return quoted + (text.size() > kMaxQuoted ? "...\"" : "\"");
}

}  // namespace slotwise
