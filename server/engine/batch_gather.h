// BatchGather: gathers all ranks' parts of a round into a batch per table, in every rank's device memory.
//
// Each rank uploads its own parts, with their offsets counted from the whole batch's first key, and an
// all-gather brings the other ranks' parts. The uploads use a stream of their own, the all-gather the
// exchange's; the device's work is ordered after both. The batches of a round lie behind each other, so that
// their small arrays are uploaded together (staged_upload.h); large arrays are uploaded directly from the
// requests. Parts arrive in rank order; a step's parts are then put in part order, because gradients are
// summed in that order. (Clients send runs of parts to ranks in order, so mostly the orders are the same.)
// Thread-safety: one thread at a time. Calls are collective.
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
#include "server/engine/carried_batches.h"
#include "server/engine/gathered_array.h"
#include "server/engine/output_distribution.h"
#include "server/engine/schedule/pending_requests.h"
#include "server/engine/schedule/round.h"
#include "server/engine/staged_upload.h"
#include "server/engine/table_work.h"
#include "server/engine/tables.h"

namespace slotwise {

// Where each part of a round lies in the gathered batch.
struct BatchLayout {
  // A size, or a place counted from the start of the batch.
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

  std::vector<Part> parts;           // in the order of round.parts
  std::vector<std::size_t> bags_of;  // [ranks]
  std::vector<std::size_t> keys_of;  // [ranks]
  Extent size;
  bool in_part_order = true;  // every part lies where it arrives
};

// A round on one table, and the places of the parts in the table's batch.
struct TableBatch {
  // `of` and `of_table` outlive it. `slots` is the number of bags in a sample: the table's slots, or 1 for
  // rows by key, where bag b is batch.keys[b].
  TableBatch(const Round& of, Table& of_table, std::uint32_t slots, int ranks)
      : round(of), table(of_table), layout(of, slots, ranks) {}

  std::size_t bags_of(Rank rank) const { return layout.bags_of[static_cast<std::size_t>(Value(rank))]; }
  DistributedBags bags() const { return {layout.bags_of, layout.size.keys, table.info.options.dim}; }

  const Round& round;  // one of the rounds of Round::ForEachTable
  Table& table;
  BatchLayout layout;
};

// The values of a batch's parts: gradients of bags, or rows.
struct ValueShare {
  const TableBatch& of;
  std::uint32_t columns = 0;
  bool mine_alone = false;  // only the values of this rank's bags are wanted
};

class BatchGather {
 public:
  // The arguments outlive it. `tickets` has this rank's requests. `stream` uploads their arrays, which stay
  // in use until the host has waited for `stream`.
  BatchGather(Device& device, Stream& stream, Collective& collective, Exchange& exchange,
              PendingRequests& tickets);

  // Returns each table with its whole batch, in device memory, parts in part order; valid until the next
  // call. May wait as the exchange does, and to grow arrays. If `carried` has every part, each rank uploads
  // all of them, and nothing travels.
  // REQUIRES: the device is done with the work that used the last round's batches.
  std::vector<TableWork::Share> Gather(std::span<const TableBatch> batches,
                                       const CarriedBatches& carried = {});

  // Returns the values of each batch that Gather returned last: float[bags][columns] in device memory, in
  // part order, or of this rank's bags alone: float[bags_of[rank]][columns]. Each array begins at a multiple
  // of 64 bytes. Device work that is queued after OrderWorkAfterValues can read them.
  std::vector<const float*> GatherBagValues(std::span<const ValueShare> shares);
  void OrderWorkAfterValues() { device_.WorkStream().OrderAfter(exchange_.stream()); }

 private:
  // Uploads the batches of all ranks. REQUIRES: `carried` has them all.
  std::vector<TableWork::Share> UploadCarried(std::span<const TableBatch> batches,
                                              const CarriedBatches& carried);

  // An array of a batch, or of its values, whose elements were put in part order on the device.
  template <class T>
  struct Ordered {
    Ordered(Device& device, std::size_t of_align) : align(of_align), array(device) {}
    void Clear() { size = used = 0; }
    const std::size_t align;  // a batch's array begins at a multiple of `align`
    std::size_t size = 0;     // elements of all batches of the round that are not in part order
    std::size_t used = 0;
    DeviceArray<T> array;
  };

  // Calls upload(place in the batch, place in this rank's blocks, part) for each part of this rank.
  template <class Upload>
  void ForMyParts(const TableBatch& batch, Upload upload) const;
  // Makes room for the batches' arrays. Throws std::bad_alloc.
  void ReserveBatches(std::span<const TableBatch> batches);
  void ReserveValues(std::span<const ValueShare> shares);
  // Returns the part that is all of a batch, if it lies in device memory; null otherwise.
  const BatchPart* WholeOnDevice(const TableBatch& batch) const;
  // Returns whether WholeOnDevice's values can be used without a copy.
  bool HasWholeValues(const TableBatch& batch) const;
  // Returns the sizes of the ranks' blocks of offsets.
  static std::vector<std::size_t> OffsetBlocks(const BatchLayout& layout);
  void UploadMyKeys(const TableBatch& batch, Key* mine);
  void UploadMyOffsets(const TableBatch& batch, std::uint32_t* mine);
  void UploadMyWeights(const TableBatch& batch, float* mine);
  void UploadMyBagValues(const ValueShare& share, float* mine);
  // Returns the arrived elements in part order. Each bag or key of a part has `width` elements, and `behind`
  // more elements follow at the end.
  template <class T>
  const T* InPartOrder(const BatchLayout& layout, std::size_t BatchLayout::Extent::*unit, std::size_t width,
                       const T* arrived, Ordered<T>& ordered, std::size_t behind = 0);

  Device& device_;
  Stream& stream_;
  Exchange& exchange_;
  Rank me_;
  PendingRequests& tickets_;
  StagedUpload batch_upload_, value_upload_;
  GatheredArray<Key> keys_;
  GatheredArray<std::uint32_t> offsets_;
  GatheredArray<float> weights_;  // of weighted rounds
  GatheredArray<float> values_;
  Ordered<Key> ordered_keys_;
  Ordered<std::uint32_t> ordered_offsets_;
  Ordered<float> ordered_weights_, ordered_values_;
  DeviceArray<std::byte> narrow_values_;  // of 16 bits, on a device with memory of its own
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BATCH_GATHER_H_
