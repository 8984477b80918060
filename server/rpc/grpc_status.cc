#include "server/rpc/grpc_status.h"

#include <string>

#include "wire/retry_after.h"
#include "wire/status_code.h"

namespace slotwise {
namespace {

constexpr std::size_t kMaxMessage = 1024;

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(WireCode(status.code())), status.message().substr(0, kMaxMessage)};
}

void AddRetryAfter(const Status& status, grpc::CallbackServerContext& context) {
  if (status.retry_after().count() == 0) return;
  context.AddTrailingMetadata(kRetryAfterMetadata, std::to_string(status.retry_after().count()));
}

}  // namespace slotwise
