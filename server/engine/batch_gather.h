// BatchGather: makes one batch, which every rank has in device memory, of the parts that came to every rank.
//
// Each rank uploads its own parts, with their offsets counted from the whole batch's first key, and an
// all-gather brings the other ranks' parts. The uploads go on in a stream of their own, the all-gather in the
// exchange's; the device's work is ordered after both. Keys, weights and values are uploaded from where the
// requests have them. Parts arrive in rank order; a step's parts are put in part order afterwards, because
// gradients are summed in that order. (Clients send contiguous runs of parts to ranks in order, so mostly the
// two orders are one.)
// Thread-safety: one thread at a time. Calls are collective but for MyBagValues.
#ifndef SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_
#define SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/device_array.h"
#include "server/collective/exchange.h"
#include "server/engine/gathered_array.h"
#include "server/engine/round.h"
#include "server/engine/ticket_book.h"
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
  // The arguments outlive it. `tickets` has this rank's requests, whose arrays stay in use until the wait of
  // `stream`, in whose order they are uploaded.
  BatchGather(Device& device, Stream& stream, Collective& collective, Exchange& exchange,
              TicketBook& tickets);

  // Returns the whole batch, in device memory, parts in part order; valid until the next call. Waits for
  // parts in device memory, whose offsets have to come to the host, and for what the exchange and growing
  // arrays wait for.
  // REQUIRES: the device is done with what used the last batch.
  BatchView Gather(const Round& round, const BatchLayout& layout);

  // Returns the parts' values, of all bags of the batch just gathered: float[bags][columns] in device memory.
  const float* GatherBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns);
  // Returns the values of this rank's bags alone: float[bags_of[rank]][columns]. Does not communicate.
  const float* MyBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns);

  // The device's memory that its arrays take.
  std::size_t bytes() const;

 private:
  // upload(place in the batch, place in this rank's blocks, the part), for each part that came to this rank.
  template <class Upload>
  void ForMyParts(const Round& round, const BatchLayout& layout, Upload upload) const;
  // The part's offsets, in host memory; valid until the next call.
  const std::uint32_t* OffsetsOnHost(const BatchPart& part);
  void UploadMyOffsets(const Round& round, const BatchLayout& layout);
  void UploadMyWeights(const Round& round, const BatchLayout& layout);
  const float* UploadMyBagValues(const Round& round, const BatchLayout& layout, std::uint32_t columns);
  // The elements that arrived, `width` a bag or key of every part and `behind` more behind them all, in their
  // places in the batch.
  template <class T>
  const T* InPartOrder(const BatchLayout& layout, std::size_t BatchLayout::Extent::*unit, std::size_t width,
                       const T* arrived, DeviceArray<T>& ordered, std::size_t behind = 0);

  Device& device_;
  Stream& stream_;
  Exchange& exchange_;
  Rank me_;
  TicketBook& tickets_;
  GatheredArray<Key> keys_;
  GatheredArray<std::uint32_t> offsets_;
  GatheredArray<float> weights_;  // of weighted rounds
  GatheredArray<float> values_;
  DeviceArray<Key> ordered_keys_;
  DeviceArray<std::uint32_t> ordered_offsets_;
  DeviceArray<float> ordered_weights_, ordered_values_;
  DeviceArray<std::byte> narrow_values_;   // of 16 bits, on a device with memory of its own
  HostScratch<std::uint32_t> my_offsets_;  // on their way to a device with memory of its own
  HostScratch<std::uint32_t> fetched_;     // a part's offsets, from device memory
  HostScratch<float> ones_;                // weights of parts that have none
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_
