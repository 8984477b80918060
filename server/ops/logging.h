// Logs of the process go to stderr, in lines with time, level and rank, as text or as JSON objects.
//
// Code logs with spdlog's own functions (spdlog::info and so on), which SetUpLogging configures. The log's
// own thread writes the lines, so no other thread waits for their reader (log_thread.h).
// Thread-safety: SetUpLogging is called while only one thread logs; the rest is safe from any thread.
#ifndef SLOTWISE_SERVER_OPS_LOGGING_H_
#define SLOTWISE_SERVER_OPS_LOGGING_H_

#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "slotwise/types.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

inline constexpr std::array<std::string_view, 5> kLogLevels{"trace", "debug", "info", "warning", "error"};

struct LogOptions {
  std::string level = "info";  // one of kLogLevels
  v1::LogFormat format = v1::LOG_FORMAT_TEXT;
  Rank rank{0};
};

// Sets up lines like these:
//     2026-01-31T23:59:59.123Z info rank=0 ready at 127.0.0.1:7070
//     {"time":"2026-01-31T23:59:59.123Z","level":"info","rank":0,"message":"ready at 127.0.0.1:7070"}
void SetUpLogging(const LogOptions& options);

// Waits, at most for `most`, until all earlier lines are written. Returns whether they are. A process calls
// this before it ends.
bool FlushLog(std::chrono::milliseconds most);

// Returns `text` as a JSON string, quotes included.
std::string JsonString(std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_LOGGING_H_
