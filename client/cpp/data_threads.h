// DataThreads are the threads that read and write all links of a client (data_link.h) and run their
// callbacks.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_DATA_THREADS_H_
#define SLOTWISE_CLIENT_CPP_DATA_THREADS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "wire/busy_polling.h"

namespace slotwise::client {

class DataThreads {
 public:
  explicit DataThreads(int threads);
  // Waits for work that is under way. REQUIRES: the links' calls are over.
  ~DataThreads();
  DataThreads(const DataThreads&) = delete;
  DataThreads& operator=(const DataThreads&) = delete;

  // Returns the loop of one of the threads, in turn.
  BusyPolling& Next();

 private:
  struct Worker;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::size_t> turn_ = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DATA_THREADS_H_
