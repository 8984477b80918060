// Collectives over MPI, on host memory.
//
// Calls are non-blocking underneath and waited for by polling that yields and then sleeps, because MPI's own blocking
// calls burn a core, and ranks often share one with each other, with gRPC and with the trainer.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/collective/collective.h"
#include "server/collective/mpi_check.h"

namespace slotwise {
namespace {

// Counts are ints in MPI; the engine's round limit keeps them far below this.
int Count(std::size_t count) {
  if (count > INT_MAX)
    throw std::runtime_error("a collective of " + std::to_string(count) + " elements a rank");
  return static_cast<int>(count);
}

// Blocks that lie one behind the other.
struct Layout {
  explicit Layout(std::size_t ranks) : counts(ranks), displacements(ranks) {}
  void Place() { std::exclusive_scan(counts.begin(), counts.end(), displacements.begin(), 0); }
  std::vector<int> counts;
  std::vector<int> displacements;
};

// Polls `done` until it is true: first without pause, then giving way to other threads, then with short sleeps.
template <class Done>
void Await(Done done) {
  constexpr int kSpins = 200;
  constexpr int kYields = 2000;
  for (int polls = 0; !done(); ++polls) {
    if (polls >= kSpins + kYields) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (polls >= kSpins) {
      sched_yield();
    }
  }
}

void Await(MPI_Request request) {
  Await([&] {
    int done = 0;
    SLOTWISE_MPI_TRY(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  });
}

// A communicator of this class's own, so that its messages meet no others.
class Communicator {
 public:
  explicit Communicator(MPI_Comm parent) {
    SLOTWISE_MPI_TRY(MPI_Comm_dup(parent, &comm_));
    SLOTWISE_MPI_TRY(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  }
  ~Communicator() { MPI_Comm_free(&comm_); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

class MpiCollective final : public Collective {
 public:
  MpiCollective() : data_(MPI_COMM_WORLD), wakes_(MPI_COMM_WORLD) {
    SLOTWISE_MPI_TRY(MPI_Comm_rank(data_.get(), &rank_));
    SLOTWISE_MPI_TRY(MPI_Comm_size(data_.get(), &size_));
    MPI_Comm machine = MPI_COMM_NULL;
    SLOTWISE_MPI_TRY(MPI_Comm_split_type(data_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine));
    SLOTWISE_MPI_TRY(MPI_Comm_rank(machine, &local_rank_));
    SLOTWISE_MPI_TRY(MPI_Comm_size(machine, &local_size_));
    MPI_Comm_free(&machine);
    ListenForWakes();
  }

  ~MpiCollective() override {
    for (MPI_Request& sent : sent_wakes_) MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Cancel(&wake_);
    MPI_Wait(&wake_, MPI_STATUS_IGNORE);
  }

  Rank rank() const override { return Rank{rank_}; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }

  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const int bytes = Count(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(
        MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, data_.get(), &request));
    Await(request);
  }

  void AllGatherBlocks(std::span<const std::size_t> sizes, void* blocks) override {
    Layout layout(sizes.size());
    for (std::size_t r = 0; r < sizes.size(); ++r) layout.counts[r] = Count(sizes[r] / 4);
    layout.Place();
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_UINT32_T, blocks, layout.counts.data(),
                                     layout.displacements.data(), MPI_UINT32_T, data_.get(), &request));
    Await(request);
  }

  // Every rank receives all partial sums of its own block and adds them in rank order. As much travels as in MPI's
  // reduce-scatter, and the sum does not depend on an order that MPI chooses.
  void ReduceScatter(std::span<const std::size_t> sizes, const float* partial, float* mine) override {
    const std::size_t size = sizes[static_cast<std::size_t>(rank_)];
    Layout out(sizes.size());
    Layout in(sizes.size());
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      out.counts[r] = Count(sizes[r]);
      in.counts[r] = Count(size);
    }
    out.Place();
    in.Place();
    if (received_.size() < size * sizes.size()) received_.resize(size * sizes.size());
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Ialltoallv(partial, out.counts.data(), out.displacements.data(), MPI_FLOAT,
                                    received_.data(), in.counts.data(), in.displacements.data(), MPI_FLOAT,
                                    data_.get(), &request));
    Await(request);
    if (size == 0) return;
    std::copy_n(received_.data(), size, mine);
    for (std::size_t r = 1; r < sizes.size(); ++r) {
      const float* block = received_.data() + r * size;
      for (std::size_t i = 0; i < size; ++i) mine[i] += block[i];
    }
  }

  void AllReduceSum(std::span<std::uint64_t> values) override {
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Iallreduce(MPI_IN_PLACE, values.data(), Count(values.size()), MPI_UINT64_T, MPI_SUM,
                                    data_.get(), &request));
    Await(request);
  }

  void Wake(std::uint64_t wait) override {
    // The last wakes have long arrived: a wait begins only after all ranks took part in the rounds before it.
    for (MPI_Request& sent : sent_wakes_) Await(std::exchange(sent, MPI_REQUEST_NULL));
    sent_wakes_.clear();
    sent_wait_ = wait;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      SLOTWISE_MPI_TRY(
          MPI_Isend(&sent_wait_, 1, MPI_UINT64_T, r, kWakeTag, wakes_.get(), &sent_wakes_.emplace_back()));
    }
  }

  bool PollWake(std::uint64_t wait) override {
    for (;;) {
      int arrived = 0;
      SLOTWISE_MPI_TRY(MPI_Test(&wake_, &arrived, MPI_STATUS_IGNORE));
      if (arrived == 0) return false;
      const std::uint64_t woken = received_wait_;
      ListenForWakes();
      if (woken == wait)
        return true;  // others may have woken us for this wait too; those count as old from here
    }
  }

 private:
  static constexpr int kWakeTag = 1;

  void ListenForWakes() {
    SLOTWISE_MPI_TRY(
        MPI_Irecv(&received_wait_, 1, MPI_UINT64_T, MPI_ANY_SOURCE, kWakeTag, wakes_.get(), &wake_));
  }

  Communicator data_;
  Communicator wakes_;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::vector<float> received_;
  std::uint64_t sent_wait_ = 0;
  std::vector<MPI_Request> sent_wakes_;
  std::uint64_t received_wait_ = 0;
  MPI_Request wake_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Collective> MakeMpiCollective() { return std::make_unique<MpiCollective>(); }

}  // namespace slotwise
