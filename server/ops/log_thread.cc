#include "server/ops/log_thread.h"

#include <poll.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <future>
#include <mutex>
#include <string>
#include <utility>

namespace slotwise {
namespace {

constexpr auto kPolicy = spdlog::async_overflow_policy::overrun_oldest;

// Writes to stderr, and waits until its reader takes the bytes. Bytes that cannot be written are lost: there
// is no other place to report them.
void WriteToStderr(const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = write(STDERR_FILENO, data, size);
    if (written > 0) {
      data += written;
      size -= static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {  // another process that shares stderr has made it non-blocking
      pollfd there{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
      poll(&there, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// Blocks signals while the thread starts, so that other threads get them.
std::shared_ptr<spdlog::details::thread_pool> MakeThread() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = std::make_shared<spdlog::details::thread_pool>(LogThread::kMostLines, 1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

// Learns when the thread has come to the place in the queue at which a flush was requested.
class LogThread::Flush final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::future<void> done() { return done_.get_future(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& /*line*/) override {}
  void flush_() override { done_.set_value(); }

 private:
  std::promise<void> done_;
};

// The sink of a logger, which writes in the thread.
class LogThread::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(spdlog::details::thread_pool& thread) : thread_(thread) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& line) override {
    const std::size_t dropped = thread_.overrun_counter();
    if (dropped > told_) {
      const std::string text =
          std::to_string(dropped - told_) + " lines before this one were dropped: stderr was not read";
      told_ = dropped;
      Write({line.logger_name, spdlog::level::warn, text});
    }
    Write(line);
  }

  void flush_() override {}

 private:
  void Write(const spdlog::details::log_msg& line) {
    spdlog::memory_buf_t text;
    formatter_->format(line, text);
    WriteToStderr(text.data(), text.size());
  }

  spdlog::details::thread_pool& thread_;
  std::size_t told_ = thread_.overrun_counter();
};

LogThread& LogThread::Get() {
  static LogThread& one = *new LogThread();  // never destroyed, because its thread may be held up in a write
  return one;
}

LogThread::LogThread() : thread_(MakeThread()) {}

std::shared_ptr<spdlog::logger> LogThread::MakeLogger(std::unique_ptr<spdlog::formatter> formatter) {
  auto sink = std::make_shared<Sink>(*thread_);
  sink->set_formatter(std::move(formatter));
  return std::make_shared<spdlog::async_logger>("slotwise", std::move(sink), thread_, kPolicy);
}

bool LogThread::Await(std::chrono::milliseconds most) {
  auto flush = std::make_shared<Flush>();
  const std::future<void> done = flush->done();
  std::make_shared<spdlog::async_logger>("flush", std::move(flush), thread_, kPolicy)->flush();
  return done.wait_for(most) == std::future_status::ready;
}

}  // namespace slotwise
