// Channels hold several connections to each of several ranks, and the threads that read the completion queue.
// Thread-safety: safe from any thread; destroyed when nothing is in flight.
#ifndef SLOTWISE_CLIENT_CPP_CHANNELS_H_
#define SLOTWISE_CLIENT_CPP_CHANNELS_H_

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace slotwise::client {

// An Arrival is an event in the completion queue. It owns itself, and Arrive deletes it.
class Arrival {
 public:
  virtual ~Arrival() = default;
  virtual void Arrive(bool ok) = 0;
};

class Channels {
 public:
  struct Channel {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<grpc::GenericStub> stub;
  };

  // Called with a line for people, from the threads below.
  using LogLine = std::function<void(std::string_view)>;

  // Each channel connects when first used. REQUIRES: an address, numbers above 0. `log` may be empty.
  Channels(std::vector<std::string> addresses, int channels_per_rank, int threads, LogLine log);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  std::size_t ranks() const { return addresses_.size(); }
  std::size_t channels_per_rank() const { return channels_per_rank_; }
  const std::string& address(std::size_t rank) const { return addresses_[rank % ranks()]; }
  // Both `rank` and `channel` wrap around.
  Channel& at(std::size_t rank, std::size_t channel) {
    return channels_[rank % ranks() * channels_per_rank_ + channel % channels_per_rank_];
  }
  grpc::CompletionQueue& queue() { return queue_; }
  void Log(std::string_view line) const {
    if (log_) log_(line);
  }

 private:
  void ReadArrivals();

  const std::vector<std::string> addresses_;
  const std::size_t channels_per_rank_;
  const LogLine log_;
  std::vector<Channel> channels_;
  grpc::CompletionQueue queue_;
  std::vector<std::jthread> threads_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CHANNELS_H_
