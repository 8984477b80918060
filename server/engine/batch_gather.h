// From the parts that came to every rank to one batch that every rank has, in device memory.
//
// Each rank uploads its own parts, with their offsets counted from the whole batch's first key, and an all-gather brings
// the others'. That goes on in a stream of its own and in the exchange's; the device's work waits for both. Keys, weights and
// values are uploaded from where the requests have them. Parts arrive in rank order; a step's are put in part order afterwards, because gradients are summed in
// that order. (Clients send contiguous runs of parts to ranks in order, so mostly they are.)
// Thread-safety: one thread at a time. Calls are collective but for MyBagValues.
#ifndef SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_
#define SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/agenda.h"
#include "server/engine/gathered_array.h"
#include "server/engine/request.h"
#include "slotwise/batch.h"

namespace slotwise {

// Where each part of a round lies in the gathered batch.
struct BatchLayout {
  // A size, or a place counted from the batch's first.
  struct Extent {
    std::size_t bags = 0;
    std::size_t keys = 0;
  };
  struct Part {
    Extent size;
    Extent arrives;  // in rank order
    Extent lies;     // in part order
  };

  BatchLayout(const Round& round, std::uint32_t slots, int ranks);

  std::vector<Part> parts;           // of round.parts
  std::vector<std::size_t> bags_of;  // [ranks]
  std::vector<std::size_t> keys_of;  // [ranks]
  Extent size;
  bool in_part_order = true;  // every part lies where it arrives
};

class BatchGather {
 public:
  using PartOf = std::function<const BatchPart&(TicketNumber)>;
  using ValuesOf = std::function<std::span<const float>(TicketNumber)>;

  // Uploads in the order of `stream`, until whose Wait the parts' arrays stay in use. Stream outlives it.
  BatchGather(Device& device, Stream& stream, Collective& collective, Exchange& exchange);

  // The whole batch, in device memory, parts in part order; valid until the next call. REQUIRES: what used the last one
  // is done.
  BatchView Gather(const Round& round, const BatchLayout& layout, const PartOf& part_of);

  // Gradients, or other values, of the bags of the batch just gathered: float[bags][columns] in device memory.
  const float* GatherBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns,
                               const ValuesOf& values_of);
  // Those of this rank's bags alone: float[bags_of[rank]][columns]. Does not communicate.
  const float* MyBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns,
                           const ValuesOf& values_of);

 private:
  // upload(part, its place in this rank's blocks, ticket), for each part that came to this rank.
  template <class Upload>
  void ForMyParts(const Round& round, const BatchLayout& layout, Upload upload) const;
  void UploadMyOffsets(const Round& round, const BatchLayout& layout, const PartOf& part_of);
  void UploadMyWeights(const Round& round, const BatchLayout& layout, const PartOf& part_of);
  const float* UploadMyBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns,
                                 const ValuesOf& values_of);
  // What arrived, `width` elements a bag or key of every part and `behind` more behind them all, in its place in the
  // batch.
  template <class T>
  const T* InPartOrder(const BatchLayout& layout, std::size_t BatchLayout::Extent::*unit, std::size_t width,
                       const T* arrived, DeviceArray<T>& ordered, std::size_t behind = 0);

  Device& device_;
  Stream& stream_;
  Exchange& exchange_;
  Rank me_;
  GatheredArray<Key> keys_;
  GatheredArray<std::uint32_t> offsets_;
  GatheredArray<float> weights_;  // of weighted rounds
  GatheredArray<float> values_;
  DeviceArray<Key> ordered_keys_;
  DeviceArray<std::uint32_t> ordered_offsets_;
  DeviceArray<float> ordered_weights_, ordered_values_;
  HostScratch<std::uint32_t> my_offsets_;  // on their way to a device with memory of its own
  HostScratch<float> ones_;                // weights of parts that have none
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_
