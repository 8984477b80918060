#include "server/rpc/grpc_status.h"

#include "wire/status_code.h"

namespace slotwise {
namespace {

constexpr std::size_t kMaxMessage = 1024;

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(WireCode(status.code())), status.message().substr(0, kMaxMessage)};
}

}  // namespace slotwise
