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
  if (text.size() <= kMaxQuoted) return '"' + std::string(text) + '"';
  return '"' + std::string(text.substr(0, kMaxQuoted)) + "...\"";
}

}  // namespace slotwise
