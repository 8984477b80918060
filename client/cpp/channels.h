// Channels hold several connections to each of several ranks, and the threads that read the completion queue.
//
// A server that is started again may have other ranks, or the same ones at other ports: then the client moves
// to other connections, and calls that are under way go on there.
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

// The connections to the ranks of one start of the server.
class Connections {
 public:
  struct Channel {
    std::string address;                  // of the rank
    std::unique_ptr<GrpcTransport> grpc;  // null: of a GPU's channel
    std::unique_ptr<DataLink> data;  // null: the data path goes by gRPC; of a GPU's channel: by its memory

    // Called before a request is sent: notices whether the connection over which answers came is gone.
    void NoteState() {
      if (state_ == State::kAnswers && !(data ? data->connected() : grpc->connected())) state_ = State::kLost;
    }
    void NoteFailure() { state_ = State::kLost; }
    // Begins to connect, if there is no connection.
    void Connect() {
      if (data) data->Connect();
      if (grpc) grpc->Connect();
    }
    // Returns whether this is the first answer since something was lost: it may be of another server.
    bool NoteAnswer() { return state_.exchange(State::kAnswers) == State::kLost; }

   private:
    enum class State : std::uint8_t { kNew, kAnswers, kLost };
    std::atomic<State> state_ = State::kNew;
  };

  // Each channel connects when first used. `threads`, `queue` and `access` outlive the connections. REQUIRES:
  // an address, a number above 0.
  Connections(const std::shared_ptr<Access>& access, std::vector<RankAddress> addresses,
              std::size_t channels_per_rank, DataThreads& threads, grpc::CompletionQueue& queue);

  // Ends connections of the data transport. REQUIRES: their calls are over, and none follows.
  void Close();

  // Returns the way to a rank by the memory of its device, which RankInfo.gpu names; null if there is none.
  Channel* by_gpu(const std::string& gpu) {
    const auto found = gpus_.find(gpu);
    return found == gpus_.end() ? nullptr : &found->second;
  }
  // Returns the names of the devices to which there is such a way.
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
  std::deque<Channel> channels_;  // which do not move
  std::map<std::string, Channel> gpus_;
};

class Channels {
 public:
  // Called with a line for people, from the threads below.
  using LogLine = std::function<void(std::string_view)>;
  // Called whenever a rank has not answered or a connection was lost, from any thread: the server may have
  // been started again.
  using OnLost = std::function<void()>;

  // REQUIRES: an address, numbers above 0. `log` and `on_lost` may be empty.
  Channels(std::shared_ptr<Access> access, std::vector<RankAddress> addresses, int channels_per_rank,
           int threads, LogLine log, OnLost on_lost = nullptr);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // Returns the connections to use now. They stay usable when there are newer ones.
  std::shared_ptr<Connections> now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  std::size_t ranks() const { return now()->ranks(); }
  std::size_t channels_per_rank() const { return channels_per_rank_; }
  // The most bytes that a message to the server may have: what it says; at first no bound is known.
  std::uint64_t most_message_bytes() const { return most_message_bytes_; }
  void TakeAtMost(std::uint64_t message_bytes) { most_message_bytes_ = message_bytes; }
  // What is sent from now on goes to these addresses. REQUIRES: an address.
  void MoveTo(const std::vector<RankAddress>& addresses);
  // Returns other connections than those to use now, with one channel to each address.
  std::shared_ptr<Connections> To(std::vector<RankAddress> addresses);
  void NoteLost() const {
    if (on_lost_) on_lost_();
  }
  // What every call begins with.
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
