#include "server/rpc/library_logs.h"

#include <google/protobuf/stubs/common.h>
#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <string>

#include "server/intake/rare_log.h"

#if GOOGLE_PROTOBUF_VERSION < 4022000  // later versions log through Abseil
#include <google/protobuf/stubs/logging.h>
#endif

namespace slotwise {
namespace {

// gRPC's errors are mostly about clients, which could fill a disk with them.
constexpr std::chrono::seconds kBetweenErrors{10};

void LogOfGrpc(gpr_log_func_args* line) {
  if (line->severity == GPR_LOG_SEVERITY_ERROR) {
    static RareLog errors(kBetweenErrors);
    if (const auto held_back = errors.Pass()) {
      return spdlog::error("gRPC: {} ({}:{}; {} more since the last such line)", line->message, line->file,
                           line->line, *held_back);
    }
  }
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
