// BatchGather: makes one batch of each table of a round, which every rank has in device memory, of the parts
// that came to every rank.
//
// Each rank uploads its own parts, with their offsets counted from the whole batch's first key, and an
// all-gather brings the other ranks' parts. The uploads go on in a stream of their own, the all-gather in the
// exchange's; the device's work is ordered after both. The batches of a round lie behind each other, so that
// their small arrays go up together (staged_upload.h); large arrays are uploaded from where the requests have
// them. Parts arrive in rank order; a step's parts are put in part order afterwards, because
// gradients are summed in that order. (Clients send contiguous runs of parts to ranks in order, so mostly the
// two orders are one.)
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

// What a round does on one table, and where the parts lie in the table's batch.
struct TableBatch {
  // `of` and `of_table` outlive it. `slots`: bags a sample; those of the table, or 1 of rows by key: bag b is
  // then batch.keys[b].
  TableBatch(const Round& of, Table& of_table, std::uint32_t slots, int ranks)
      : round(of), table(of_table), layout(of, slots, ranks) {}

  std::size_t bags_of(Rank rank) const { return layout.bags_of[static_cast<std::size_t>(Value(rank))]; }
  DistributedBags bags() const { return {layout.bags_of, layout.size.keys, table.info.options.dim}; }

  const Round& round;  // one of the rounds of Round::ForEachTable
  Table& table;
  BatchLayout layout;
};

// The values that a batch's parts bring: gradients of bags, or rows.
struct ValueShare {
  const TableBatch& of;
  std::uint32_t columns = 0;
  bool mine_alone = false;  // this rank's bags' values are wanted, not all ranks'
};

class BatchGather {
 public:
  // The arguments outlive it. `tickets` has this rank's requests, whose arrays stay in use until the wait of
  // `stream`, in whose order they are uploaded.
  BatchGather(Device& device, Stream& stream, Collective& collective, Exchange& exchange,
              PendingRequests& tickets);

  // Returns each table with its whole batch, in device memory, parts in part order; valid until the next
  // call. Waits for what the exchange and growing arrays wait for.
  // If `carried` has every part, each rank uploads all of them, and nothing travels.
  // REQUIRES: the device is done with what used the last round's batches.
  std::vector<TableWork::Share> Gather(std::span<const TableBatch> batches,
                                       const CarriedBatches& carried = {});

  // Returns the values of each batch of the round just gathered: float[bags][columns] in device memory, in
  // part order, or of this rank's bags alone: float[bags_of[rank]][columns]. Each begins at a multiple of 64
  // bytes. They are there for the device's work that is asked for behind OrderWorkAfterValues.
  std::vector<const float*> GatherBagValues(std::span<const ValueShare> shares);
  void OrderWorkAfterValues() { device_.WorkStream().OrderAfter(exchange_.stream()); }

 private:
  // Uploads the batches of all ranks. REQUIRES: they are all carried.
  std::vector<TableWork::Share> UploadCarried(std::span<const TableBatch> batches,
                                              const CarriedBatches& carried);

  // An array of a batch, or of its values, whose elements were put in part order on the device.
  template <class T>
  struct Ordered {
    Ordered(Device& device, std::size_t of_align) : align(of_align), array(device) {}
    void Clear() { size = used = 0; }
    const std::size_t align;  // an array of a batch begins at a multiple of so many elements
    std::size_t size = 0;     // elements of all batches of the round that are not in part order
    std::size_t used = 0;
    DeviceArray<T> array;
  };

  // upload(place in the batch, place in this rank's blocks, the part), for each part that came to this rank.
  template <class Upload>
  void ForMyParts(const TableBatch& batch, Upload upload) const;
  // Makes room for the batches' arrays. Throws std::bad_alloc.
  void ReserveBatches(std::span<const TableBatch> batches);
  void ReserveValues(std::span<const ValueShare> shares);
  // Returns the part that is all of a batch, if it lies in device memory; null otherwise.
  const BatchPart* WholeOnDevice(const TableBatch& batch) const;
  // Whether that part's values can be used as they lie.
  bool HasWholeValues(const TableBatch& batch) const;
  // The sizes of the ranks' blocks of offsets.
  static std::vector<std::size_t> OffsetBlocks(const BatchLayout& layout);
  void UploadMyKeys(const TableBatch& batch, Key* mine);
  void UploadMyOffsets(const TableBatch& batch, std::uint32_t* mine);
  void UploadMyWeights(const TableBatch& batch, float* mine);
  void UploadMyBagValues(const ValueShare& share, float* mine);
  // The elements that arrived, `width` a bag or key of every part and `behind` more behind them all, in their
  // places in the batch.
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
