// Stage: what a round on a batch needs until the device has done it.
//
// A round is over for the engine when everything is asked of the device; its stage keeps the arrays that the device still
// reads and writes, and the answers that wait for it. Rounds take turns at a device's stages, so that one's pooled bags
// travel and come to the host while the next one's batch arrives and is worked on.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_STAGE_H_
#define SLOTWISE_SERVER_ENGINE_STAGE_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/bag_travel.h"
#include "server/engine/batch_gather.h"
#include "server/engine/inbox.h"
#include "server/engine/request.h"

namespace slotwise {

// Rounds that may be in the middle of their work on a device at once: the second begins while the first one's bags
// travel.
inline constexpr std::size_t kStages = 2;

class Stage {
 public:
  // The arguments outlive it.
  Stage(Device& device, Collective& collective, const Exchanges& exchanges);
  ~Stage() { stream_.reset(); }  // waits, before what it uses goes
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Carries the round's batch up, and its results down.
  Stream& stream() { return *stream_; }
  BatchGather& gather() { return gather_; }
  TravelArrays& travel() { return travel_; }
  DeviceArray<float>& pooled() { return pooled_; }

  // Keeps, until the device is done with its arrays, a request that was answered.
  void Keep(Request request) { kept_.push_back(std::move(request)); }
  // Keeps one that Finish answers: by `values`, which are there when the stream is done.
  void AnswerLater(LookupRequest request, PooledValues values);

  // Nothing more is asked for this round: from here on the stream is done when the round is.
  void Close(Stream& work) { stream_->OrderAfter(work); }

  // Finish, if some request waits for what the device has done.
  void FinishIfDone();
  // Waits for the round, answers what waits for it, and lets go of its requests. Nothing if there is no round.
  void Finish();

 private:
  struct Waiting {
    LookupRequest request;
    PooledValues values;
  };

  std::unique_ptr<Stream> stream_;
  BatchGather gather_;
  TravelArrays travel_;
  DeviceArray<float> pooled_;  // of a device with memory of its own
  std::vector<Request> kept_;
  std::vector<Waiting> waiting_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_STAGE_H_
