// BenchTable is the table that slotwise-bench table times. It drives a shard through shard.h as the server
// does. CheckTable checks the table's answers.
// Thread-safety: one thread at a time. Throws std::runtime_error, std::bad_alloc.
#ifndef SLOTWISE_BENCH_BENCH_TABLE_H_
#define SLOTWISE_BENCH_BENCH_TABLE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "bench/common_options.h"
#include "bench/on_device.h"
#include "kernels/shard.h"

namespace slotwise::bench {

// A call may return before the device has finished; Wait() waits for the device. `offsets` describe bags of
// one key.
class BenchTable {
 public:
  BenchTable(Device& device, const TableOptions& options)
      : device_(device), shard_(Must(device.MakeShard(options, {.secret = kBenchSecret}), "no shard")) {}

  using Keys = OnDevice<Key>;
  using Offsets = OnDevice<std::uint32_t>;

  FoundBatch Find(const Keys& keys, const Offsets& offsets) {
    return Must(shard_->PrepareFind({keys.span(), offsets.span()}), "PrepareFind");
  }
  InsertedBatch FindOrInsert(const Keys& keys, const Offsets& offsets) {
    return Must(shard_->PrepareInsert({keys.span(), offsets.span()}).Insert(), "no room for rows");
  }
  void Wait() { device_.Wait(); }  // until the device has finished all calls
  Shard& shard() { return *shard_; }

 private:
  Device& device_;
  std::unique_ptr<Shard> shard_;
};

// Checks a table with the keys of rows first .. first + keys - 1, whose rows all hold 1. Writes a different
// number under each key of a batch, then reads the batch and as many absent keys. `drawn` are the batch's
// rows, counted from `first`.
void CheckTable(Device& device, BenchTable& table, std::uint64_t first, std::uint32_t keys,
                std::span<const std::uint32_t> drawn);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_BENCH_TABLE_H_
