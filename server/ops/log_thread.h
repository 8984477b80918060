// LogThread: takes the process's log lines off its threads and writes them to stderr, so that no thread waits
// for the log's reader. Lines wait in a queue of kMostLines. When the queue is full because no reader
// reads, the oldest line is dropped, and the next line that is written follows one that says how many were.
//
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

  // Returns the process's one. It lives until the process ends, and so may be held up by a write that never
  // ends.
  static LogThread& Get();

  // Returns a logger whose lines have this form.
  std::shared_ptr<spdlog::logger> MakeLogger(std::unique_ptr<spdlog::formatter> formatter);

  // Waits until all lines that were logged before are written, but no longer than `most`. Returns whether
  // they are.
  bool Await(std::chrono::milliseconds most);

 private:
  class Sink;
  class Flush;

  LogThread();

  std::shared_ptr<spdlog::details::thread_pool> thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_LOG_THREAD_H_
