// Exchange over MPI, which sees host memory: a device that has its own sends through pinned scratch of the host's.
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/collective/mpi_calls.h"

namespace slotwise {
namespace {

std::size_t Sum(std::span<const std::size_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

class MpiExchange final : public Exchange {
 public:
  MpiExchange(Device& device, Lane& lane, Collective& collective)
      : Exchange(lane),
        device_(device),
        watchdog_(collective.watchdog()),
        me_(static_cast<std::size_t>(Value(collective.rank()))),
        data_(MPI_COMM_WORLD),
        sent_(device),
        received_(device),
        mine_(device) {}

  std::string Name() const override {
    return device_.SharesHostMemory() ? "MPI" : "MPI, through the host's memory";
  }

  void AllGatherBlocks(std::span<const std::size_t> bytes, void* blocks) override {
    const std::size_t all = Sum(bytes);
    auto* const device = static_cast<std::byte*>(blocks);
    std::byte* const host = OnHost(received_, device, all);
    const std::size_t first = Sum(bytes.first(me_));
    Fetch(host + first, device + first, bytes[me_]);

    const MpiLayout layout(bytes, sizeof(std::uint32_t));
    const Watchdog::Scope scope(watchdog_, "AllGatherBlocks", all);
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_UINT32_T, host, layout.counts.data(),
                                     layout.displacements.data(), MPI_UINT32_T, data_.get(), &request));
    Await(request);
    lane().Copy(device, host, all);
  }

  // Every rank receives all partial sums of its own block and adds them in rank order. As much travels as in MPI's
  // reduce-scatter, and the sum does not depend on an order that MPI chooses.
  void ReduceScatter(std::span<const std::size_t> sizes, const float* partial, float* mine) override {
    const std::size_t size = sizes[me_];
    const std::vector<std::size_t> from_sizes(sizes.size(), size);
    const float* const received = Swap("ReduceScatter", sizes, partial, from_sizes,
                                       received_.Reserve(size * sizes.size() * sizeof(float)));
    if (size == 0) return;
    float* const sum = OnHost(mine_, mine, size);
    std::copy_n(received, size, sum);
    for (std::size_t r = 1; r < sizes.size(); ++r) {
      const float* block = received + r * size;
      for (std::size_t i = 0; i < size; ++i) sum[i] += block[i];
    }
    lane().Copy(mine, sum, size * sizeof(float));
  }

  void AllToAll(std::span<const std::size_t> to_sizes, const float* send,
                std::span<const std::size_t> from_sizes, float* received) override {
    const std::size_t all = Sum(from_sizes);
    std::byte* const host = OnHost(received_, reinterpret_cast<std::byte*>(received), all * sizeof(float));
    lane().Copy(received, Swap("AllToAll", to_sizes, send, from_sizes, host), all * sizeof(float));
  }

 private:
  // Where MPI finds or leaves n elements that lie, or will lie, at `device`.
  template <class T>
  T* OnHost(HostScratch<T>& scratch, T* device, std::size_t n) {
    return device_.SharesHostMemory() ? device : scratch.Reserve(n);
  }

  // Brings bytes for MPI to send. What the scratch was used for before is done then, too.
  void Fetch(void* host, const void* device, std::size_t bytes) {
    lane().Copy(host, device, bytes);
    lane().Wait();
  }

  // All ranks' blocks for this one, in host memory.
  const float* Swap(const char* name, std::span<const std::size_t> to_sizes, const float* send,
                    std::span<const std::size_t> from_sizes, std::byte* received) {
    const std::size_t all = Sum(to_sizes);
    const float* host = send;
    if (!device_.SharesHostMemory()) {
      float* const scratch = sent_.Reserve(all);
      Fetch(scratch, send, all * sizeof(float));
      host = scratch;
    }
    const MpiLayout out(to_sizes);
    const MpiLayout in(from_sizes);
    const Watchdog::Scope scope(watchdog_, name, all * sizeof(float));
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Ialltoallv(host, out.counts.data(), out.displacements.data(), MPI_FLOAT, received,
                                    in.counts.data(), in.displacements.data(), MPI_FLOAT, data_.get(),
                                    &request));
    Await(request);
    return reinterpret_cast<const float*>(received);
  }

  Device& device_;
  Watchdog& watchdog_;
  const std::size_t me_;
  Communicator data_;
  HostScratch<float> sent_;
  HostScratch<std::byte> received_;
  HostScratch<float> mine_;
};

}  // namespace

std::unique_ptr<Exchange> MakeMpiExchange(Device& device, Lane& lane, Collective& collective) {
  return std::make_unique<MpiExchange>(device, lane, collective);
}

}  // namespace slotwise
