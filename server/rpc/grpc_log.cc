#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

namespace slotwise {

void SendGrpcLogToOurs() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    if (line->severity == GPR_LOG_SEVERITY_DEBUG) {
      spdlog::trace("gRPC: {} ({}:{})", line->message, line->file, line->line);
    } else {
      spdlog::debug("gRPC: {} ({}:{})", line->message, line->file, line->line);
    }
  });
}

}  // namespace slotwise
