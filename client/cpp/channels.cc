#include "client/cpp/channels.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

#include "wire/freed_memory.h"

namespace slotwise::client {
namespace {

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetMaxReceiveMessageSize(-1);
  // Every channel has a connection of its own, because gRPC gives one connection about one core.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A trainer is near its servers, so it ignores a web proxy that happens to be configured.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Run tries again itself, at other ranks too.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Reconnect soon after a server restarts; gRPC's own backoff grows to two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // This option in fact bounds how long one connect() may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return arguments;
}

}  // namespace

Connections::Connections(const std::shared_ptr<Access>& access, std::vector<RankAddress> addresses,
                         std::size_t channels_per_rank, DataThreads& threads, grpc::CompletionQueue& queue)
    : addresses_(std::move(addresses)), channels_per_rank_(channels_per_rank) {
  grpc::ChannelArguments arguments = Arguments();
  access->SetArguments(arguments);
  for (const RankAddress& address : addresses_) {
    for (std::size_t i = 0; i < channels_per_rank_; ++i) {
      Channel& made = channels_.emplace_back();
      made.address = address.address;
      made.grpc = std::make_unique<GrpcTransport>(
          address, grpc::CreateCustomChannel(address.address, access->channel(), arguments), *access, queue);
      if (address.data) made.data = std::make_unique<DataLink>(threads, address, access);
    }
    // Ranks that share a device have one channel by its memory, to the first of these ranks.
    if (!address.data || address.gpu.empty() || gpus_.contains(address.gpu)) continue;
    RankAddress by_gpu = address;
    by_gpu.by_gpu = true;
    Channel& made = gpus_[address.gpu];
    made.address = address.address;
    made.data = std::make_unique<DataLink>(threads, by_gpu, access);
  }
}

std::vector<std::string> Connections::gpus() const {
  std::vector<std::string> names;
  for (const auto& [gpu, channel] : gpus_) names.push_back(gpu);
  return names;
}

void Connections::Close() {
  for (Channel& channel : channels_) {
    if (channel.data) channel.data->Close();
  }
  for (auto& [gpu, channel] : gpus_) channel.data->Close();
}

Channels::Channels(std::shared_ptr<Access> access, std::vector<RankAddress> addresses, int channels_per_rank,
                   int threads, LogLine log, OnLost on_lost)
    : access_(std::move(access)),
      channels_per_rank_(static_cast<std::size_t>(channels_per_rank)),
      log_(std::move(log)),
      on_lost_(std::move(on_lost)),
      data_threads_(threads),
      now_(std::make_shared<Connections>(access_, std::move(addresses), channels_per_rank_, data_threads_,
                                         queue_)) {
  KeepFreedMemory();
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { ReadArrivals(); });
  } catch (...) {
    queue_.Shutdown();  // before the destructor joins the threads, which else would wait for ever
    throw;
  }
}

Channels::~Channels() { queue_.Shutdown(); }

void Channels::MoveTo(const std::vector<RankAddress>& addresses) {
  // gRPC connects again without being asked.
  if (now()->addresses() == addresses) return;
  auto next = std::make_shared<Connections>(access_, addresses, channels_per_rank_, data_threads_, queue_);
  const std::lock_guard lock(mutex_);
  now_ = std::move(next);
}

std::shared_ptr<Connections> Channels::To(std::vector<RankAddress> addresses) {
  return std::make_shared<Connections>(access_, std::move(addresses), 1, data_threads_, queue_);
}

void Channels::ReadArrivals() {
  void* arrival = nullptr;
  bool ok = false;
  while (queue_.Next(&arrival, &ok)) static_cast<Arrival*>(arrival)->Arrive(ok);
}

}  // namespace slotwise::client
