// Channels holds several connections to each rank of a server, and the threads that read completion events.
//
// A restarted server may have other ranks, or the same ranks at other ports. Then the client moves to new
// connections, and calls that are under way go on there.
// Thread-safety: safe from any thread; destroyed when nothing is in flight.
#ifndef SLOTWISE_CLIENT_CPP_CHANNELS_H_
#define SLOTWISE_CLIENT_CPP_CHANNELS_H_

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/cpp/data_link.h"
#include "client/cpp/grpc_transport.h"
#include "client/cpp/rank_address.h"
#include "wire/access.h"

namespace slotwise::client {

// The connections to the ranks of one server instance.
class Connections {
 public:
  struct Channel {
    std::string address;                  // the rank's
    std::unique_ptr<GrpcTransport> grpc;  // null in a channel of a GPU
    std::unique_ptr<DataLink> data;  // null: arrays go by gRPC. In a channel of a GPU: goes by its memory

    // Notices whether the connection that brought the last answer is lost. Called before a request is sent.
    void NoteState() {
      if (state_ == State::kAnswers && !(data ? data->connected() : grpc->connected())) state_ = State::kLost;
    }
    void NoteFailure() { state_ = State::kLost; }
    // Begins to connect, if there is no connection.
    void Connect() {
      if (data) data->Connect();
      if (grpc) grpc->Connect();
    }
    // Returns whether this is the first answer since a connection was lost: it may be of another instance.
    bool NoteAnswer() { return state_.exchange(State::kAnswers) == State::kLost; }

   private:
    enum class State : std::uint8_t { kNew, kAnswers, kLost };
    std::atomic<State> state_ = State::kNew;
  };

  // Each channel connects when first used. `threads`, `queue` and `access` outlive the connections. REQUIRES:
  // at least one address, and at least one channel per rank.
  Connections(const std::shared_ptr<Access>& access, std::vector<RankAddress> addresses,
              std::size_t channels_per_rank, DataThreads& threads, grpc::CompletionQueue& queue);

  // Ends the connections of the data transport. REQUIRES: their calls are over, and no new ones come.
  void Close();

  // Returns the channel that goes by the memory of the device that RankInfo.gpu names `gpu`; null: none does.
  Channel* by_gpu(const std::string& gpu) {
    const auto found = gpus_.find(gpu);
    return found == gpus_.end() ? nullptr : &found->second;
  }
  // Returns the names of the devices that have such a channel.
  std::vector<std::string> gpus() const;
  std::size_t ranks() const { return addresses_.size(); }
  const std::vector<RankAddress>& addresses() const { return addresses_; }
  // Both `rank` and `channel` wrap around.
  Channel& at(std::size_t rank, std::size_t channel) {
    return channels_[rank % ranks() * channels_per_rank_ + channel % channels_per_rank_];
  }

 private:
  const std::vector<RankAddress> addresses_;
  const std::size_t channels_per_rank_;
  std::deque<Channel> channels_;  // a deque, because a channel does not move
  std::map<std::string, Channel> gpus_;
};

class Channels {
 public:
  // Called with a line for the log, from the threads below.
  using LogLine = std::function<void(std::string_view)>;
  // Called, from any thread, whenever a rank has not answered or a connection was lost: the server may have
  // restarted.
  using OnLost = std::function<void()>;

  // REQUIRES: at least one address, numbers above 0. `log` and `on_lost` may be empty.
  Channels(std::shared_ptr<Access> access, std::vector<RankAddress> addresses, int channels_per_rank,
           int threads, LogLine log, OnLost on_lost = nullptr);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // Returns the connections to use now. They stay usable after MoveTo.
  std::shared_ptr<Connections> now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  std::size_t ranks() const { return now()->ranks(); }
  std::size_t channels_per_rank() const { return channels_per_rank_; }
  // Returns the most bytes that the server accepts in a message; unlimited until the server names a limit.
  std::uint64_t most_message_bytes() const { return most_message_bytes_; }
  void TakeAtMost(std::uint64_t message_bytes) { most_message_bytes_ = message_bytes; }
  // Sends later requests to these addresses. REQUIRES: at least one address.
  void MoveTo(const std::vector<RankAddress>& addresses);
  // Returns separate connections to these addresses, with one channel each.
  std::shared_ptr<Connections> To(std::vector<RankAddress> addresses);
  void NoteLost() const {
    if (on_lost_) on_lost_();
  }
  // The credentials of every call.
  Access& access() const { return *access_; }
  grpc::CompletionQueue& queue() { return queue_; }
  void Log(std::string_view line) const {
    if (log_) log_(line);
  }

 private:
  void ReadArrivals();

  const std::shared_ptr<Access> access_;
  const std::size_t channels_per_rank_;
  const LogLine log_;
  const OnLost on_lost_;
  DataThreads data_threads_;
  std::atomic<std::uint64_t> most_message_bytes_ = std::numeric_limits<std::uint64_t>::max();
  grpc::CompletionQueue queue_;
  mutable std::mutex mutex_;
  std::shared_ptr<Connections> now_;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CHANNELS_H_
