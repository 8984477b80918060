// Implements the Exchange over MPI, which sees host memory: a GPU's arrays travel through pinned scratch of
// the host's. Where the ranks share a host's memory, small arrays travel by a meeting there.
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/collective/host_meeting.h"
#include "server/collective/mpi_calls.h"

namespace slotwise {
namespace {

class MpiExchange final : public Exchange {
 public:
  MpiExchange(Device& device, Stream& stream, Collective& collective, const std::string& why)
      : Exchange(stream),
        why_(why.empty() ? "" : ": " + why),
        device_(device),
        watchdog_(collective.watchdog()),
        meeting_(collective.meeting()),
        me_(static_cast<std::size_t>(Value(collective.rank()))),
        data_(MPI_COMM_WORLD),
        sent_(device),
        received_(device),
        mine_(device) {}

  std::string Name() const override {
    return (device_.SharesHostMemory() ? "MPI" : "MPI, through the host's memory") + why_;
  }

  void AllGatherBlocks(std::span<const std::size_t> bytes, void* blocks) override {
    const Blocks array{bytes, blocks};
    if (FitMeeting({&array, 1})) return GatherAtMeeting({&array, 1});
    const std::size_t all = Sum(bytes);
    auto* const device = static_cast<std::byte*>(blocks);
    std::byte* const host = OnHost(received_, device, all);
    const std::size_t first = Sum(bytes.first(me_));
    Fetch(host + first, device + first, bytes[me_]);

    const MpiLayout layout(bytes, sizeof(std::uint32_t));
    const Watchdog::Scope scope(watchdog_, "AllGatherBlocks", all, &durations()[Operation::kAllGather]);
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_UINT32_T, host, layout.counts.data(),
                                     layout.displacements.data(), MPI_UINT32_T, data_.get(), &request));
    Await(request);
    stream().Copy(device, host, all);
  }

  void AllGatherTogether(std::span<const Blocks> arrays) override {
    if (FitMeeting(arrays)) return GatherAtMeeting(arrays);
    for (const Blocks& array : arrays) AllGatherBlocks(array.bytes, array.blocks);
  }

  // Every rank receives all partial sums of its own block and adds them in rank order. As much travels as in
  // MPI's reduce-scatter, and the sum does not depend on an order that MPI chooses.
  void ReduceScatter(std::span<const std::size_t> sizes, ConstNumbers partial, float* mine) override {
    const std::size_t size = sizes[me_];
    const std::vector<std::size_t> from_sizes(sizes.size(), size);
    std::byte* const to = received_.Reserve(size * sizes.size() * BytesOf(partial.type));
    const std::byte* const received = Swap(Operation::kReduceScatter, sizes, partial, from_sizes, to);
    if (size == 0) return;
    float* const sum = OnHost(mine_, mine, size);
    // The host adds, even for a GPU, to which every rank's block would have to be copied.
    SumOverRanksOnHost({{received, partial.type}, static_cast<int>(sizes.size()), size}, sum);
    stream().Copy(mine, sum, size * sizeof(float));
  }

  void AllToAll(std::span<const std::size_t> to_sizes, ConstNumbers send,
                std::span<const std::size_t> from_sizes, Numbers received) override {
    const std::size_t all = Sum(from_sizes) * BytesOf(received.type);
    std::byte* const host = OnHost(received_, static_cast<std::byte*>(received.data), all);
    stream().Copy(received.data, Swap(Operation::kAllToAll, to_sizes, send, from_sizes, host), all);
  }

 private:
  using Operation = ExchangeOperation;

  // Returns whether each rank's blocks of the arrays fit into its place at a meeting. The same on every rank.
  bool FitMeeting(std::span<const Blocks> arrays) const {
    if (meeting_ == nullptr) return false;
    for (std::size_t r = 0; r < meeting_->ranks(); ++r) {
      std::size_t bytes = 0;
      for (const Blocks& array : arrays) bytes += array.bytes[r];
      if (bytes > HostMeeting::kMostBytes) return false;
    }
    return true;
  }

  void GatherAtMeeting(std::span<const Blocks> arrays) {
    std::size_t all = 0;
    std::byte* mine = meeting_->Mine();
    for (const Blocks& array : arrays) {
      const std::size_t first = Sum(array.bytes.first(me_));
      stream().Copy(mine, static_cast<std::byte*>(array.blocks) + first, array.bytes[me_]);
      mine += array.bytes[me_];
      all += Sum(array.bytes);
    }
    stream().Wait();
    const Watchdog::Scope scope(watchdog_, "AllGatherBlocks", all, &durations()[Operation::kAllGather]);
    meeting_->Meet();
    for (std::size_t r = 0; r < meeting_->ranks(); ++r) {
      if (r == me_) continue;
      const std::byte* theirs = meeting_->Of(r);
      for (const Blocks& array : arrays) {
        std::byte* const to = static_cast<std::byte*>(array.blocks) + Sum(array.bytes.first(r));
        stream().Copy(to, theirs, array.bytes[r]);
        theirs += array.bytes[r];
      }
    }
    stream().Wait();  // the meeting after the next overwrites the places
  }

  // Returns where MPI finds or leaves n elements that lie, or will lie, at `device`.
  template <class T>
  T* OnHost(HostScratch<T>& scratch, T* device, std::size_t n) {
    return device_.SharesHostMemory() ? device : scratch.Reserve(n);
  }

  // Brings bytes for MPI to send. Waits, so that the scratch's earlier uses are done too.
  void Fetch(void* host, const void* device, std::size_t bytes) {
    stream().Copy(host, device, bytes);
    stream().Wait();
  }

  // Returns all ranks' blocks for this one, in host memory.
  const std::byte* Swap(Operation operation, std::span<const std::size_t> to_sizes, ConstNumbers send,
                        std::span<const std::size_t> from_sizes, std::byte* received) {
    const std::size_t all = Sum(to_sizes) * BytesOf(send.type);
    const void* host = send.data;
    if (!device_.SharesHostMemory()) {
      std::byte* const scratch = sent_.Reserve(all);
      Fetch(scratch, send.data, all);
      host = scratch;
    }
    const char* const name = operation == Operation::kReduceScatter ? "ReduceScatter" : "AllToAll";
    const Watchdog::Scope scope(watchdog_, name, all, &durations()[operation]);
    SwapBlocks(to_sizes, {host, send.type}, from_sizes, received);
    return received;
  }

  // Sends from pair to pair: MPI_Ialltoallv counts in ints where a block begins, and one rank may own all of
  // a large round. A pair's block is small to both of them, and then each finds it in its part of the other's
  // place at a meeting, to which all ranks come whatever they have to send.
  void SwapBlocks(std::span<const std::size_t> to_sizes, ConstNumbers send,
                  std::span<const std::size_t> from_sizes, std::byte* received) {
    const MPI_Datatype type = send.type == DataType::kFloat32 ? MPI_FLOAT : MPI_UINT16_T;
    const std::size_t width = BytesOf(send.type);
    const std::size_t small = meeting_ == nullptr ? 0 : HostMeeting::kMostBytes / to_sizes.size();
    const auto* block = static_cast<const std::byte*>(send.data);
    std::byte* const first_received = received;
    requests_.clear();
    for (std::size_t r = 0; r < to_sizes.size(); ++r) {
      const auto rank = static_cast<int>(r);
      if (r == me_) {
        std::copy_n(block, to_sizes[r] * width, received);
      } else {
        if (from_sizes[r] * width > small) {
          SLOTWISE_MPI_TRY(
              MPI_Irecv(received, MpiCount(from_sizes[r]), type, rank, 0, data_.get(), &NewRequest()));
        }
        if (to_sizes[r] * width <= small) {
          if (small > 0) std::copy_n(block, to_sizes[r] * width, meeting_->Mine() + r * small);
        } else {
          SLOTWISE_MPI_TRY(
              MPI_Isend(block, MpiCount(to_sizes[r]), type, rank, 0, data_.get(), &NewRequest()));
        }
      }
      block += to_sizes[r] * width;
      received += from_sizes[r] * width;
    }
    if (meeting_ != nullptr) TakeSmallBlocks(from_sizes, width, small, first_received);
    Await(requests_);
  }

  void TakeSmallBlocks(std::span<const std::size_t> from_sizes, std::size_t width, std::size_t small,
                       std::byte* received) {
    meeting_->Meet();
    for (std::size_t r = 0; r < from_sizes.size(); ++r) {
      const std::size_t bytes = from_sizes[r] * width;
      if (r != me_ && bytes <= small) std::copy_n(meeting_->Of(r) + me_ * small, bytes, received);
      received += bytes;
    }
  }
  MPI_Request& NewRequest() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  const std::string why_;
  Device& device_;
  Watchdog& watchdog_;
  HostMeeting* const meeting_;
  const std::size_t me_;
  Communicator data_;
  std::vector<MPI_Request> requests_;
  HostScratch<std::byte> sent_;
  HostScratch<std::byte> received_;
  HostScratch<float> mine_;
};

}  // namespace

std::unique_ptr<Exchange> MakeMpiExchange(Device& device, Stream& stream, Collective& collective,
                                          const std::string& why) {
  return std::make_unique<MpiExchange>(device, stream, collective, why);
}

}  // namespace slotwise
