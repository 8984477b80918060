// From the parts that came to every rank to one batch that every rank has.
//
// Each rank writes its own parts where they will stay, with their offsets counted from the whole batch's first key, and
// an all-gather brings the others'. Parts lie in rank order; a step's are put in part order afterwards, because
// gradients are summed in that order. (Clients send contiguous runs of parts to ranks in order, so mostly they are.)
// Thread-safety: one thread at a time. Every call is collective.
#ifndef SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_
#define SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/engine/agenda.h"
#include "server/engine/device_array.h"
#include "server/engine/request.h"
#include "slotwise/batch.h"

namespace slotwise {

// Where each part of a round lies in the gathered batch.
struct BatchLayout {
  struct Place {
    std::size_t first_bag = 0;
    std::size_t first_key = 0;
  };

  BatchLayout(const Round& round, std::uint32_t slots, int ranks);

  std::vector<Place> places;         // of round.parts
  std::vector<std::size_t> bags_of;  // [ranks]
  std::vector<std::size_t> keys_of;  // [ranks]
  std::size_t bags = 0;
  std::size_t keys = 0;
  bool in_part_order = true;
};

class BatchGather {
 public:
  using PartOf = std::function<const BatchPart&(TicketNumber)>;
  using GradientsOf = std::function<std::span<const float>(TicketNumber)>;

  BatchGather(Device& device, Collective& collective);

  // The whole batch, in device memory, parts in rank order; valid until the next call.
  BatchView Gather(const Round& round, const BatchLayout& layout, const PartOf& part_of);

  struct Step {
    BatchView batch;
    const float* gradients;  // [bags][dim]
  };
  // The same with the gradients (or other values) of the bags, parts in part order.
  Step GatherStep(const Round& round, const BatchLayout& layout, std::uint32_t dim, const PartOf& part_of,
                  const GradientsOf& gradients_of);

 private:
  void GatherOnHost(const Round& round, const BatchLayout& layout, const PartOf& part_of);
  void PutInPartOrder(const Round& round, const BatchLayout& layout, std::uint32_t dim);
  BatchView OnDevice(const Round& round, const BatchLayout& layout);

  Collective& collective_;
  HostScratch<Key> keys_, ordered_keys_;
  HostScratch<std::uint32_t> offsets_, ordered_offsets_;
  HostScratch<float> weights_, ordered_weights_;  // of weighted rounds
  HostScratch<float> gradients_, ordered_gradients_;
  DeviceArray<Key> device_keys_;
  DeviceArray<std::uint32_t> device_offsets_;
  DeviceArray<float> device_weights_;
  DeviceArray<float> device_gradients_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_
