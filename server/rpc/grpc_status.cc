#include "server/rpc/grpc_status.h"

#include <string>

#include "wire/error_details.h"
#include "wire/retry_after.h"
#include "wire/status_code.h"

namespace slotwise {
namespace {

constexpr std::size_t kMaxMessage = 1024;

// Cuts a long message between two UTF-8 characters.
std::string Cut(const std::string& message) {
  if (message.size() <= kMaxMessage) return message;
  std::size_t end = kMaxMessage;
  while (end > kMaxMessage - 4 && (static_cast<unsigned char>(message[end]) & 0xC0U) == 0x80U) --end;
  return message.substr(0, end);
}

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Cut(status.message());
  return {static_cast<grpc::StatusCode>(WireCode(status.code())), message, ErrorDetails(status, message)};
}

void AddRetryAfter(const Status& status, grpc::CallbackServerContext& context) {
  if (status.retry_after().count() == 0) return;
  context.AddTrailingMetadata(kRetryAfterMetadata, std::to_string(status.retry_after().count()));
}

}  // namespace slotwise
