// Stage: what a round on a batch needs until the device has done it. Stages: the stages of a rank, which take
// turns.
//
// For the engine a round is over when all its work has been asked of the device. The round's stage keeps the
// arrays that the device still reads and writes, and the answers that wait for the device. Rounds take turns
// at a device's stages, so that one round's pooled bags travel and come to the host while the next round's
// batch arrives and is worked on.
//
// Two lookups, 1 and 2, follow each other on a GPU. The chart shows which stream does each piece of their
// work: "up" is a stage's own stream, which carries the batch up and the results down; "batches" and "bags"
// are the streams of the two exchanges; "work" is the device's. Time goes to the right. A piece begins when
// its stream has ended the piece before, and when its round's piece before has ended, which takes an
// OrderAfter.
//
//     up, stage 0  |upload 1|                                 |divide, copy 1 down|
//     up, stage 1            |upload 2|                                       |divide, copy 2 down|
//     batches                |gather 1||gather 2|
//     work                             |find 1, pool 1||find 2, pool 2|
//     bags                                             |sum 1|         |sum 2|
//
// The data of a lookup passes each border once: up, batches, work, bags, up. A push's gradients take the same
// way up, and where owned bags travel, from work to bags and back. Before a stage takes its next round, the
// host waits for the stage's stream, and with it for all that is ordered before it: then the last round's
// arrays are free (Stage::Finish). A push ends on "work": Close orders the stage's stream behind it, so that
// Finish waits for the update too.
//
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_STAGE_H_
#define SLOTWISE_SERVER_ENGINE_STAGE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/batch_gather.h"
#include "server/engine/output_distributor.h"
#include "server/engine/schedule/pending_requests.h"
#include "server/engine/schedule/request.h"

namespace slotwise {

// Rounds that may be in the middle of their work on a device at once: the second begins while the first one's
// bags travel.
inline constexpr std::size_t kStages = 2;

class Stage {
 public:
  // The arguments outlive the stage. `tickets` has the requests of its rounds.
  Stage(Device& device, Collective& collective, const Exchanges& exchanges, PendingRequests& tickets);
  ~Stage() { stream_.reset(); }  // waits, before the arrays go that the stream's work uses
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Carries the round's batch up, and its results down.
  Stream& stream() { return *stream_; }
  // The batches of the round's tables, which last until the device is done with the round.
  BatchGather& gather() { return gather_; }
  // Each of a round's tables whose bags travel while the next table's are pooled has its own.
  DistributionArrays& distribution_arrays(std::size_t table = 0);
  DeviceArray<float>& pooled() { return pooled_; }
  DeviceArray<std::byte>& narrow() { return narrow_; }

  // Keeps a request, with its arrays, until the device is done with the round.
  void Keep(Request request) { kept_.push_back(std::move(request)); }
  // The same for anything else that the device still reads.
  void Keep(std::shared_ptr<const void> memory) { kept_memory_.push_back(std::move(memory)); }
  // Calls `answer` when the device is done with the round.
  void AnswerLater(std::function<void()> answer) { answers_.push_back(std::move(answer)); }

  // Nothing more is asked for this round: from here on the stream is done when the round is.
  void Close(Stream& work) { stream_->OrderAfter(work); }

  // Whether no request or answer waits for what the device has done, or does.
  bool idle() const { return answers_.empty() && kept_.empty(); }
  // Finish, if some request or answer waits for what the device has done.
  void FinishIfDone();
  // Waits until the device is done with the round, lets go of the round's requests, and gives the answers
  // that waited for it. Does nothing if there is no round.
  void Finish();

  // The distribution arrays of further tables are kept for the next round as long as they take no more. A
  // CPU's are main memory, which its tables need, and are soon made anew.
  static constexpr std::size_t kMostKept = std::size_t{256} << 20;
  static constexpr std::size_t kMostKeptOnCpu = std::size_t{16} << 20;

 private:
  void LetGoOfLargeArrays();

  Device& device_;
  std::unique_ptr<Stream> stream_;
  BatchGather gather_;
  std::vector<std::unique_ptr<DistributionArrays>> distribution_arrays_;  // by table of the round
  DeviceArray<float> pooled_;      // bags that are not pooled where their numbers are to lie
  DeviceArray<std::byte> narrow_;  // 16-bit numbers on a device with memory of its own
  std::vector<Request> kept_;
  std::vector<std::shared_ptr<const void>> kept_memory_;
  std::vector<std::function<void()>> answers_;
};

class Stages {
 public:
  // The arguments outlive the stages.
  Stages(Device& device, Collective& collective, const Exchanges& exchanges, PendingRequests& tickets);

  // Whether the device may be at work on one round while the next one begins. The same on every rank.
  bool overlap() const { return stages_.size() > 1; }

  // Waits until the stage whose turn comes next has no round, and returns that stage. The reference stays
  // valid as long as the stages.
  Stage& Next();

  // Waits until the stage whose turn comes next has no round.
  void FinishOldest() { After(1).Finish(); }
  // Finishes the rounds that the device is done with, the oldest first.
  void FinishDone();
  // Whether no request or answer waits for what the device has done, or does.
  bool idle() const;
  // Waits until the device is done with every round, the oldest first.
  void FinishAll();

 private:
  // The stage whose turn comes `turns` turns from now.
  Stage& After(std::size_t turns) { return *stages_[(turn_ + turns) % stages_.size()]; }

  std::vector<std::unique_ptr<Stage>> stages_;
  std::size_t turn_ = 0;  // of the stage in use
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_STAGE_H_
