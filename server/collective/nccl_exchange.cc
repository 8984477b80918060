// Implements the Exchange over NCCL: see nccl.h.
//
// Blocks of one size go by NCCL's own collectives; other blocks go by sends and receives between all pairs,
// which moves as many bytes over each link on GPUs that all have links to each other.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend/cuda_check.cuh"
#include "server/collective/device_array.h"
#include "server/collective/nccl.h"
#include "server/collective/nccl_library.h"
#include "server/collective/sampled_times.h"

namespace slotwise {
namespace {

bool AllEqual(std::span<const std::size_t> sizes) {
  return std::ranges::all_of(sizes, [&](std::size_t size) { return size == sizes[0]; });
}

// An event behind the work that was enqueued on a stream until now. Its owner may be any thread.
class Event {
 public:
  Event(int ordinal, cudaStream_t stream) : ordinal_(ordinal) {
    SLOTWISE_CUDA_TRY(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    SLOTWISE_CUDA_TRY(cudaEventRecord(event_, stream));
  }
  ~Event() {
    cudaSetDevice(ordinal_);
    cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool Reached() const {
    SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal_));
    return IsReady(cudaEventQuery(event_));
  }

 private:
  int ordinal_;
  cudaEvent_t event_ = nullptr;
};

// Two events of a stream, which say when the device came to them.
class TimedEvents {
 public:
  explicit TimedEvents(cudaStream_t stream) : stream_(stream) {
    SLOTWISE_CUDA_TRY(cudaEventCreate(&begin_));
    if (const cudaError_t made = cudaEventCreate(&end_); made != cudaSuccess) {
      cudaEventDestroy(begin_);
      SLOTWISE_CUDA_TRY(made);
    }
  }
  ~TimedEvents() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  TimedEvents(const TimedEvents&) = delete;
  TimedEvents& operator=(const TimedEvents&) = delete;

  void Begin() { SLOTWISE_CUDA_TRY(cudaEventRecord(begin_, stream_)); }
  void End() { SLOTWISE_CUDA_TRY(cudaEventRecord(end_, stream_)); }
  // REQUIRES: End.
  std::optional<std::chrono::nanoseconds> Took() const {
    if (!IsReady(cudaEventQuery(end_))) return std::nullopt;
    float milliseconds = 0;
    SLOTWISE_CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return std::chrono::nanoseconds(std::llround(1e6 * static_cast<double>(milliseconds)));
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

constexpr int kOldestNccl = NCCL_VERSION(2, 20, 0);

class NcclExchange final : public Exchange {
 public:
  NcclExchange(Device& device, Stream& stream, Collective& collective, const ExchangeOptions& options)
      : Exchange(stream),
        device_(device),
        watchdog_(collective.watchdog()),
        deterministic_(options.deterministic),
        me_(static_cast<std::size_t>(Value(collective.rank()))),
        ranks_(static_cast<std::size_t>(collective.size())),
        stream_(static_cast<cudaStream_t>(stream.NativeHandle())),
        received_(device),
        times_(stream_) {
    ncclUniqueId mine{};
    if (me_ == 0) SLOTWISE_NCCL_TRY(nccl_.GetUniqueId(&mine));
    std::vector<ncclUniqueId> ids(ranks_);
    collective.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(ids)));
    const Watchdog::Scope scope(watchdog_, "ncclCommInitRank", sizeof(mine));
    SLOTWISE_NCCL_TRY(nccl_.CommInitRank(&comm_, collective.size(), ids[0], static_cast<int>(me_)));
  }

  ~NcclExchange() override {
    cudaStreamSynchronize(stream_);
    watchdog_.ForgetEnded();  // all have, and they ask the communicator
    nccl_.CommDestroy(comm_);
  }

  std::string Name() const override {
    int version = 0;
    nccl_.GetVersion(&version);
    return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
  }

  void AllGatherBlocks(std::span<const std::size_t> bytes, void* blocks) override {
    auto* const all = static_cast<std::byte*>(blocks);
    std::byte* const mine = all + Sum(bytes.first(me_));
    Run(ExchangeOperation::kAllGather, "AllGatherBlocks", Sum(bytes), [&] {
      if (AllEqual(bytes)) {
        SLOTWISE_NCCL_TRY(nccl_.AllGather(mine, all, bytes[me_], ncclUint8, comm_, stream_));
        return;
      }
      std::byte* block = all;
      for (std::size_t r = 0; r < ranks_; block += bytes[r++]) {
        if (r == me_) continue;
        Send(mine, bytes[me_], r);
        Receive(block, bytes[r], r);
      }
    });
  }

  void ReduceScatter(std::span<const std::size_t> sizes, ConstNumbers partial, float* mine) override {
    const std::size_t size = sizes[me_];
    if (partial.type == DataType::kFloat32 && AllEqual(sizes) && !deterministic_) {
      Run(ExchangeOperation::kReduceScatter, "ReduceScatter", Sum(sizes) * sizeof(float), [&] {
        SLOTWISE_NCCL_TRY(
            nccl_.ReduceScatter(partial.data, mine, size, ncclFloat32, ncclSum, comm_, stream_));
      });
      return;
    }
    // Received blocks lie `size` apart, this rank's own one is added from where it is. NCCL would add halves
    // as halves, and round every sum.
    const std::size_t element = BytesOf(partial.type);
    const auto* const blocks = static_cast<const std::byte*>(partial.data);
    std::byte* const received = received_.Reserve(ranks_ * size * element);
    const std::byte* const own = blocks + Sum(sizes.first(me_)) * element;
    Run(ExchangeOperation::kReduceScatter, "ReduceScatter", Sum(sizes) * element, [&] {
      const std::byte* block = blocks;
      for (std::size_t r = 0; r < ranks_; block += sizes[r++] * element) {
        if (r == me_) continue;
        Send(block, sizes[r] * element, r);
        Receive(received + r * size * element, size * element, r);
      }
    });
    stream().SumOverRanks({.blocks = {received, partial.type},
                           .ranks = static_cast<int>(ranks_),
                           .size = size,
                           .own = own,
                           .me = static_cast<int>(me_)},
                          mine);
  }

  void AllToAll(std::span<const std::size_t> to_sizes, ConstNumbers send,
                std::span<const std::size_t> from_sizes, Numbers received) override {
    const std::size_t element = BytesOf(send.type);
    const auto* to = static_cast<const std::byte*>(send.data);
    auto* from = static_cast<std::byte*>(received.data);
    Run(ExchangeOperation::kAllToAll, "AllToAll", Sum(to_sizes) * element, [&] {
      for (std::size_t r = 0; r < ranks_; to += to_sizes[r] * element, from += from_sizes[r] * element, ++r) {
        // A rank sends to itself as well: NCCL copies while the links carry other blocks.
        Send(to, to_sizes[r] * element, r);
        Receive(from, from_sizes[r] * element, r);
      }
    });
  }

 private:
  // Makes one operation of the calls of `enqueue`. The first operation between two ranks connects them, and
  // waits for the other rank.
  template <class Enqueue>
  void Run(ExchangeOperation operation, const char* name, std::size_t bytes, Enqueue enqueue) {
    const Watchdog::Scope scope(watchdog_, name, bytes);
    times_.Begin(durations()[operation]);
    SLOTWISE_NCCL_TRY(nccl_.GroupStart());
    enqueue();
    SLOTWISE_NCCL_TRY(nccl_.GroupEnd());
    times_.End();
    const auto event = std::make_shared<Event>(device_.Ordinal(), stream_);
    watchdog_.Add(name, bytes, [event, comm = comm_, &nccl = nccl_] {
      ncclResult_t error = ncclSuccess;
      SLOTWISE_NCCL_TRY(nccl.CommGetAsyncError(comm, &error));
      SLOTWISE_NCCL_TRY(error);
      return event->Reached();
    });
  }

  // Empty blocks do not travel; both sides know their sizes.
  void Send(const void* block, std::size_t bytes, std::size_t to) {
    if (bytes == 0) return;
    SLOTWISE_NCCL_TRY(nccl_.Send(block, bytes, ncclUint8, static_cast<int>(to), comm_, stream_));
  }
  void Receive(void* block, std::size_t bytes, std::size_t from) {
    if (bytes == 0) return;
    SLOTWISE_NCCL_TRY(nccl_.Recv(block, bytes, ncclUint8, static_cast<int>(from), comm_, stream_));
  }

  const NcclLibrary& nccl_ = *LoadNccl();
  Device& device_;
  Watchdog& watchdog_;
  const bool deterministic_;
  const std::size_t me_;
  const std::size_t ranks_;
  cudaStream_t stream_;
  ncclComm_t comm_ = nullptr;
  DeviceArray<std::byte> received_;
  SampledTimes<TimedEvents> times_;
};

}  // namespace

NcclOffer OfferOf(const Device& device) {
  NcclOffer offer;
  const NcclLibrary* const nccl = device.Ordinal() < 0 ? nullptr : LoadNccl();
  if (nccl == nullptr) return offer;
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device.Ordinal()) != cudaSuccess) {
    cudaGetLastError();  // the next check is not to see it
    return offer;
  }
  int version = 0;
  SLOTWISE_NCCL_TRY(nccl->GetVersion(&version));
  if (version < kOldestNccl) return offer;
  offer.version = version;
  std::ranges::copy(properties.uuid.bytes, offer.gpu.begin());
  return offer;
}

std::unique_ptr<Exchange> MakeNcclExchange(Device& device, Stream& stream, Collective& collective,
                                           const ExchangeOptions& options) {
  return std::make_unique<NcclExchange>(device, stream, collective, options);
}

}  // namespace slotwise
