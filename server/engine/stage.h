// Stage: the buffers of a round on a batch, until the device has done the round. Stages: the stages of a
// rank, which take turns.
//
// The engine goes on to the next round once all of a round's work has been queued on the device. The round's
// stage keeps the arrays that the device still reads and writes, and the answers that wait for the device.
// Rounds use the stages in turns, so that one round's pooled bags travel and come to the host while the
// device works on the next round's batch.
//
// Two lookups, 1 and 2, follow each other on a GPU. The chart shows which stream does each piece of their
// work: "up" is a stage's own stream, which carries the batch up and the results down; "batches" and "bags"
// are the streams of the two exchanges; "work" is the device's. Time goes to the right. A piece begins when
// the previous piece of its stream has ended, and the previous piece of its round; OrderAfter makes the
// stream wait for the latter.
//
//     up, stage 0  |upload 1|                                 |divide, copy 1 down|
//     up, stage 1            |upload 2|                                       |divide, copy 2 down|
//     batches                |gather 1||gather 2|
//     work                             |find 1, pool 1||find 2, pool 2|
//     bags                                             |sum 1|         |sum 2|
//
// A lookup's work passes through the streams once: up, batches, work, bags, up. A push's gradients take the
// same way up; where owned bags travel, they also go from work to bags and back. Before a stage takes its
// next round, the host waits for the stage's stream and for all work that is ordered before it: then the last
// round's arrays are free (Stage::Finish). A push ends on "work": Close orders the stage's stream behind
// "work", so that Finish waits for the update too.
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

// The number of rounds that may be in progress on a device at once: the second begins while the first one's
// bags travel.
inline constexpr std::size_t kStages = 2;

class Stage {
 public:
  // The arguments outlive the stage. `tickets` has the requests of its rounds.
  Stage(Device& device, Collective& collective, const Exchanges& exchanges, PendingRequests& tickets);
  ~Stage() { stream_.reset(); }  // waits, before the arrays go that the stream's work uses
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Returns the stream that carries the round's batch up, and its results down.
  Stream& stream() { return *stream_; }
  // Returns the batches of the round's tables; they stay until the device is done with the round.
  BatchGather& gather() { return gather_; }
  // Returns the arrays of the round's `table`-th table. Each table whose bags travel while the next table's
  // bags are pooled has its own.
  DistributionArrays& distribution_arrays(std::size_t table = 0);
  DeviceArray<float>& pooled() { return pooled_; }
  DeviceArray<std::byte>& narrow() { return narrow_; }

  // Keeps a request, with its arrays, until the device is done with the round.
  void Keep(Request request) { kept_.push_back(std::move(request)); }
  // Keeps any other memory that the device still reads.
  void Keep(std::shared_ptr<const void> memory) { kept_memory_.push_back(std::move(memory)); }
  // Calls `answer` when the device is done with the round.
  void AnswerLater(std::function<void()> answer) { answers_.push_back(std::move(answer)); }

  // Called when all of the round's work is queued: from here on the stream is done when the round is done.
  void Close(Stream& work) { stream_->OrderAfter(work); }

  // Returns whether no request and no answer waits for the device.
  bool idle() const { return answers_.empty() && kept_.empty(); }
  // Calls Finish if the device is done with the round and some request or answer waits for it.
  void FinishIfDone();
  // Waits until the device is done with the round, lets go of the round's requests, and gives the answers
  // that waited for it. Does nothing if there is no round.
  void Finish();

  // A round keeps the distribution arrays of further tables for the next round if they take at most these
  // bytes. The bound is lower on a CPU, whose tables need the main memory, and which makes arrays quickly.
  static constexpr std::size_t kMostKept = std::size_t{256} << 20;
  static constexpr std::size_t kMostKeptOnCpu = std::size_t{16} << 20;

 private:
  void LetGoOfLargeArrays();

  Device& device_;
  std::unique_ptr<Stream> stream_;
  BatchGather gather_;
  std::vector<std::unique_ptr<DistributionArrays>> distribution_arrays_;  // by table of the round
  DeviceArray<float> pooled_;      // bags that are not pooled right in their last place
  DeviceArray<std::byte> narrow_;  // 16-bit numbers on a device with memory of its own
  std::vector<Request> kept_;
  std::vector<std::shared_ptr<const void>> kept_memory_;
  std::vector<std::function<void()>> answers_;
};

class Stages {
 public:
  // The arguments outlive the stages.
  Stages(Device& device, Collective& collective, const Exchanges& exchanges, PendingRequests& tickets);

  // Returns whether the next round may begin while the device works on one. The same on every rank.
  bool overlap() const { return stages_.size() > 1; }

  // Waits until the next stage in turn has no round, and returns that stage, which lives as long as these.
  Stage& Next();

  // Waits until the next stage in turn has no round.
  void FinishOldest() { After(1).Finish(); }
  // Finishes the rounds that the device is done with, the oldest first.
  void FinishDone();
  // Returns whether no request and no answer waits for the device.
  bool idle() const;
  // Waits until the device is done with every round, the oldest first.
  void FinishAll();

 private:
  // Returns the stage whose turn comes `turns` turns from now.
  Stage& After(std::size_t turns) { return *stages_[(turn_ + turns) % stages_.size()]; }

  std::vector<std::unique_ptr<Stage>> stages_;
  std::size_t turn_ = 0;  // of the stage in use
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_STAGE_H_
