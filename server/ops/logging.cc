#include "server/ops/logging.h"

#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <utility>

#include "server/ops/log_thread.h"

namespace slotwise {
namespace {

std::atomic<bool> log_is_ours = false;

constexpr char kTime[] = "%Y-%m-%dT%H:%M:%S.%eZ";

// Writes one JSON object per line; spdlog's own patterns do not escape.
class JsonFormatter final : public spdlog::formatter {
 public:
  explicit JsonFormatter(Rank rank)
      : rank_(rank),
        head_(std::string(R"({"time":")") + kTime + R"(","level":"%l","rank":)" +
                  std::to_string(Value(rank)) + R"(,"message":)",
              spdlog::pattern_time_type::utc, "") {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    head_.format(message, line);
    const std::string text = JsonString({message.payload.data(), message.payload.size()}) + "}\n";
    line.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(rank_); }

 private:
  Rank rank_;
  spdlog::pattern_formatter head_;
};

std::unique_ptr<spdlog::formatter> FormatterOf(const LogOptions& options) {
  if (options.format == v1::LOG_FORMAT_JSON) return std::make_unique<JsonFormatter>(options.rank);
  const std::string pattern = std::string(kTime) + " %l rank=" + std::to_string(Value(options.rank)) + " %v";
  return std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc);
}

}  // namespace

void SetUpLogging(const LogOptions& options) {
  auto logger = LogThread::Get().MakeLogger(FormatterOf(options));
  logger->set_level(spdlog::level::from_str(options.level));
  spdlog::set_default_logger(std::move(logger));
  log_is_ours = true;
}

bool FlushLog(std::chrono::milliseconds most) { return !log_is_ours || LogThread::Get().Await(most); }

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[7];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      json += escaped;
    } else {
      json += c;
    }
  }
  return json + '"';
}

}  // namespace slotwise
