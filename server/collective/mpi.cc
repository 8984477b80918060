// Implements the Collective over MPI.
#include <mpi.h>

#include <utility>
#include <vector>

#include "server/collective/collective.h"
#include "server/collective/mpi_calls.h"

namespace slotwise {
namespace {

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
    const int bytes = MpiCount(mine.size());
    const Watchdog::Scope scope(watchdog(), "AllGather", mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(
        MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, data_.get(), &request));
    Await(request);
  }

  void AllReduceSum(std::span<std::uint64_t> values) override {
    const Watchdog::Scope scope(watchdog(), "AllReduceSum", values.size_bytes());
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Iallreduce(MPI_IN_PLACE, values.data(), MpiCount(values.size()), MPI_UINT64_T,
                                    MPI_SUM, data_.get(), &request));
    Await(request);
  }

  void Wake(std::uint64_t wait) override {
    const Watchdog::Scope scope(watchdog(), "Wake", sizeof(wait));
    // The last wakes have arrived already, because a wait begins only after all ranks took part in the rounds
    // before it.
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
      if (woken == wait) return true;  // other ranks' wakes for this wait count as old from here on
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
  std::uint64_t sent_wait_ = 0;
  std::vector<MPI_Request> sent_wakes_;
  std::uint64_t received_wait_ = 0;
  MPI_Request wake_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Collective> MakeMpiCollective() { return std::make_unique<MpiCollective>(); }

}  // namespace slotwise
