#include "client/cpp/data_threads.h"

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <optional>
#include <thread>

namespace slotwise::client {

struct DataThreads::Worker {
  BusyPolling loop;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work{
      loop.context().get_executor()};
  std::thread thread;
};

DataThreads::DataThreads(int threads) {
  for (int i = 0; i < threads; ++i) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.thread = std::thread([&worker] { worker.loop.Run(); });
  }
}

DataThreads::~DataThreads() {
  for (const auto& worker : workers_) worker->work.reset();
  for (const auto& worker : workers_) worker->thread.join();
}

BusyPolling& DataThreads::Next() { return workers_[turn_++ % workers_.size()]->loop; }

}  // namespace slotwise::client
