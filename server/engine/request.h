// What the rpc room hands the engine, and what it gets back. Everything here is checked: the engine trusts it.
// Thread-safety: plain values; a `done` is called once, from the engine's thread or the caller's, and must not block.
#ifndef SLOTWISE_SERVER_ENGINE_REQUEST_H_
#define SLOTWISE_SERVER_ENGINE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/shard.h"
#include "server/engine/array_pool.h"
#include "server/engine/tables.h"
#include "slotwise/batch.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// An array in host memory that starts uninitialised, because its first use is to be written whole.
template <class T>
class HostArray {
 public:
  HostArray() = default;
  // In `pool`'s memory, or in ordinary memory.
  explicit HostArray(std::size_t size, ArrayPool* pool = nullptr)
      : data_(pool == nullptr ? std::make_shared_for_overwrite<T[]>(size) : pool->Take<T>(size)),
        size_(size) {}
  HostArray(HostArray&& other) noexcept { Swap(other); }
  HostArray& operator=(HostArray&& other) noexcept {
    Swap(other);
    return *this;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

 private:
  void Swap(HostArray& other) noexcept {
    data_.swap(other.data_);
    std::swap(size_, other.size_);
  }

  std::shared_ptr<T[]> data_;
  std::size_t size_ = 0;
};

// One request's share of a batch: `samples` samples of the table's slots. REQUIRES: Validate(view(), ...) is OK.
struct BatchPart {
  std::uint32_t samples = 0;
  HostArray<Key> keys;
  HostArray<std::uint32_t> offsets;  // bags + 1, from 0
  HostArray<float> weights;          // finite; empty: all 1

  BatchView view() const { return {keys.span(), offsets.span(), weights.span()}; }
};

// float[samples · slots · dim]: a view into the round's output that keeps it alive.
struct PooledValues {
  std::shared_ptr<const float[]> values;
  std::size_t size = 0;
};

struct LookupRequest {
  TableId table{0};
  LookupMode mode = LookupMode::kTrain;
  BatchPart batch;
  std::function<void(Result<PooledValues>)> done;
};

struct PushRequest {
  TableId table{0};
  StepId step;
  BatchPart batch;
  HostArray<float> gradients;  // finite; float[samples · slots · dim]
  // The table's count of applied steps when this one was applied.
  std::function<void(Result<std::uint64_t>)> done;
};

struct CreatedTable {
  TableId id{0};
  bool created = false;  // false: it was there already, with the same options
};

struct CreateTableRequest {
  TableOptions options;
  std::function<void(Result<CreatedTable>)> done;
};

struct DropTableRequest {
  TableId table{0};
  std::function<void(Status)> done;
};

struct SetLearningRateRequest {
  TableId table{0};
  float learning_rate = 0;  // finite, above 0
  std::function<void(Status)> done;
};

// Rows given and forgotten, one key a bag: bag b is batch.keys[b].
struct ImportRequest {
  TableId table{0};
  BatchPart batch;
  bool with_state = false;
  std::uint64_t table_steps = 0;  // raises the table's count of applied steps to this
  HostArray<float> records;       // finite; float[keys][dim], or with_state [keys][dim + state]
  std::function<void(Status)> done;
};

struct EraseRequest {
  TableId table{0};
  BatchPart batch;
  std::function<void(Result<std::uint64_t>)> done;  // how many keys had a row
};

// The keys that this rank holds, in no order.
struct ListKeysRequest {
  TableId table{0};
  std::function<void(Result<std::vector<Key>>)> done;
};

// The rows of those of `keys` that this rank holds.
struct ReadRowsRequest {
  TableId table{0};
  std::vector<Key> keys;
  std::function<void(Result<RowRecords>)> done;
};

// What all ranks together hold of a table.
struct TableSummary {
  std::uint64_t steps = 0;
  float learning_rate = 0;         // of the next step
  DigestSums digest;               // zeros unless asked for
  std::vector<ShardUsage> shards;  // in rank order
  TravelledRounds rounds;
};

struct SummarizeRequest {
  TableId table{0};
  bool with_digest = false;
  std::function<void(Result<TableSummary>)> done;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_REQUEST_H_
