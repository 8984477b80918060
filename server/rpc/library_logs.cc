#include "server/rpc/library_logs.h"

#include <google/protobuf/stubs/common.h>
#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <string>

#if GOOGLE_PROTOBUF_VERSION < 4022000  // later versions log through Abseil
#include <google/protobuf/stubs/logging.h>
#endif

namespace slotwise {
namespace {

void LogOfGrpc(gpr_log_func_args* line) {
  const auto level = line->severity == GPR_LOG_SEVERITY_DEBUG ? spdlog::level::trace : spdlog::level::debug;
  spdlog::log(level, "gRPC: {} ({}:{})", line->message, line->file, line->line);
}

#if GOOGLE_PROTOBUF_VERSION < 4022000
void LogOfProtobuf(google::protobuf::LogLevel, const char* file, int line, const std::string& message) {
  spdlog::debug("protobuf: {} ({}:{})", message, file, line);
}
#endif

}  // namespace

void SendLibraryLogsToOurs() {
  gpr_set_log_function(LogOfGrpc);
#if GOOGLE_PROTOBUF_VERSION < 4022000
  google::protobuf::SetLogHandler(LogOfProtobuf);
#endif
}

}  // namespace slotwise
