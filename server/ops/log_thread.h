// LogThread writes the process's log lines to stderr from its own thread, so that no thread waits for the
// log's reader. Up to kMostLines lines wait in a queue. If the queue is full because the reader does not
// read, the oldest line is dropped; the next written line then comes after a line with the number of dropped
// ones.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_OPS_LOG_THREAD_H_
#define SLOTWISE_SERVER_OPS_LOG_THREAD_H_

#include <spdlog/async_logger.h>
#include <spdlog/formatter.h>

#include <chrono>
#include <cstddef>
#include <memory>

namespace slotwise {

class LogThread {
 public:
  static constexpr std::size_t kMostLines = 4096;

  // Returns the process's only one. It lives until the process ends, because a write to stderr may never end.
  static LogThread& Get();

  // Returns a logger that formats its lines with `formatter`.
  std::shared_ptr<spdlog::logger> MakeLogger(std::unique_ptr<spdlog::formatter> formatter);

  // Waits, at most for `most`, until all earlier lines are written. Returns whether they are.
  bool Await(std::chrono::milliseconds most);

 private:
  class Sink;
  class Flush;

  LogThread();

  std::shared_ptr<spdlog::details::thread_pool> thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_LOG_THREAD_H_
