// Implements the Collective over MPI, and over the memory of a host that all ranks share.
#include <mpi.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "server/collective/collective.h"
#include "server/collective/host_meeting.h"
#include "server/collective/host_segment.h"
#include "server/collective/mpi_calls.h"

namespace slotwise {
namespace {

// Returns whether each of so many ranks of this host can have a processor to itself.
bool HaveProcessorsEach(int ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) >= ranks;
}

class MpiCollective final : public Collective {
 public:
  explicit MpiCollective(HostMemoryUse use) : data_(MPI_COMM_WORLD), wakes_(MPI_COMM_WORLD) {
    SLOTWISE_MPI_TRY(MPI_Comm_rank(data_.get(), &rank_));
    SLOTWISE_MPI_TRY(MPI_Comm_size(data_.get(), &size_));
    MPI_Comm machine = MPI_COMM_NULL;
    SLOTWISE_MPI_TRY(MPI_Comm_split_type(data_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine));
    SLOTWISE_MPI_TRY(MPI_Comm_rank(machine, &local_rank_));
    SLOTWISE_MPI_TRY(MPI_Comm_size(machine, &local_size_));
    MPI_Comm_free(&machine);
    MeetOnHost(use);
    if (!meeting_) ListenForWakes();
  }

  ~MpiCollective() override {
    if (meeting_) return;  // no rank listens, and none was sent anything
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
    if (meeting_ && mine.size() <= HostMeeting::kMostBytes) return meeting_->AllGather(mine, all);
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(
        MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, data_.get(), &request));
    Await(request);
  }

  void AllGatherBegins(std::span<const std::byte> mine, std::size_t used, std::span<std::byte> all) override {
    if (!meeting_ || mine.size() > HostMeeting::kMostBytes) return AllGather(mine, all);
    const Watchdog::Scope scope(watchdog(), "AllGather", mine.size());
    meeting_->AllGatherBegins(mine, used, all);
  }

  void AllReduceSum(std::span<std::uint64_t> values) override {
    const Watchdog::Scope scope(watchdog(), "AllReduceSum", values.size_bytes());
    if (meeting_ && values.size_bytes() <= HostMeeting::kMostBytes) return meeting_->AllReduceSum(values);
    MPI_Request request = MPI_REQUEST_NULL;
    SLOTWISE_MPI_TRY(MPI_Iallreduce(MPI_IN_PLACE, values.data(), MpiCount(values.size()), MPI_UINT64_T,
                                    MPI_SUM, data_.get(), &request));
    Await(request);
  }

  void Wake(std::uint64_t wait) override {
    const Watchdog::Scope scope(watchdog(), "Wake", sizeof(wait));
    if (meeting_) return meeting_->Wake(wait);
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
    if (meeting_) {
      GoOn();
      return meeting_->PollWake(wait);
    }
    for (;;) {
      int arrived = 0;
      SLOTWISE_MPI_TRY(MPI_Test(&wake_, &arrived, MPI_STATUS_IGNORE));
      if (arrived == 0) return false;
      const std::uint64_t woken = received_wait_;
      ListenForWakes();
      if (woken == wait) return true;  // other ranks' wakes for this wait count as old from here on
    }
  }

  Bell* bell() override { return meeting_ ? &meeting_->bell() : nullptr; }
  HostMeeting* meeting() override { return meeting_.get(); }

 private:
  static constexpr int kWakeTag = 1;
  // A rank that sleeps takes longer to come back than this time, which is that of a few meetings.
  static constexpr std::chrono::microseconds kSpin{20};

  // Collective, over MPI. The ranks agree that all of them have the memory, or do without: ranks of several
  // hosts, or of containers with a /dev/shm each, cannot share it.
  void MeetOnHost(HostMemoryUse use) {
    if (size_ == 1) return;
    const std::size_t bytes = HostMeeting::BytesFor(size_);
    std::unique_ptr<HostSegment> segment;
    HostSegment::Name name{};
    const bool may = local_size_ == size_ && use == HostMemoryUse::kAllowed;
    if (may && rank_ == 0) segment = HostSegment::Make(bytes);
    if (segment) name = segment->name();
    name = AllGatherValues(*this, name).front();
    if (may && rank_ != 0 && name[0] != '\0') segment = HostSegment::Open(name, bytes);
    std::array<std::uint64_t, 1> without{segment ? 0U : 1U};
    AllReduceSum(without);
    if (without[0] > 0) return;
    segment->RemoveName();
    segment_ = std::move(segment);
    meeting_ = std::make_unique<HostMeeting>(
        segment_->data(),
        HostMeeting::Options{.rank = rank_,
                             .ranks = size_,
                             .spin = HaveProcessorsEach(size_) ? kSpin : std::chrono::microseconds(0),
                             .meanwhile = [this] { GoOn(); }});
  }

  // Gives MPI a chance to go on sending this rank's messages, which MPI may do only while it is called.
  void GoOn() {
    int arrived = 0;
    SLOTWISE_MPI_TRY(MPI_Iprobe(MPI_ANY_SOURCE, kWakeTag, wakes_.get(), &arrived, MPI_STATUS_IGNORE));
  }

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
  std::unique_ptr<HostSegment> segment_;
  std::unique_ptr<HostMeeting> meeting_;  // if null, everything goes over MPI
};

}  // namespace

std::unique_ptr<Collective> MakeMpiCollective(HostMemoryUse use) {
  return std::make_unique<MpiCollective>(use);
}

}  // namespace slotwise
