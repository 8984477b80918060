#include "bench/sharded_table.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "bench/common_options.h"
#include "bench/workload.h"

namespace slotwise::bench {
namespace {

// A rank's first of n things that ranks share evenly.
std::size_t FirstOf(std::size_t rank, std::size_t ranks, std::size_t n) { return n * rank / ranks; }

}  // namespace

ShardedTable::ShardedTable(Device& device, Collective& collective, const TableOptions& options)
    : device_(device),
      collective_(collective),
      options_(options),
      me_(static_cast<std::size_t>(Value(collective.rank()))),
      shard_(Must(
          device.MakeShard(options, {collective.rank(), collective.size(), EvenBucketMap(collective.size())}),
          "no shard")),
      device_keys_(device),
      device_offsets_(device),
      device_gradients_(device),
      device_pooled_(device) {}

void ShardedTable::Insert(std::span<const Key> keys) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (std::size_t at = 0; at < keys.size(); at += kPiece) {
    const auto piece = keys.subspan(at, std::min(kPiece, keys.size() - at));
    std::vector<Key> copy(piece.begin(), piece.end());
    std::vector<std::uint32_t> offsets = EvenOffsets(copy.size(), 1);
    PrepareAndInsert({{device_keys_.From(copy.data(), copy.size()), copy.size()},
                      {device_offsets_.From(offsets.data(), offsets.size()), offsets.size()}});
    Wait();
  }
}

void ShardedTable::SetBatch(std::span<const Key> keys, std::uint32_t bags, std::uint32_t hot,
                            std::span<const float> gradients) {
  const auto ranks = static_cast<std::size_t>(collective_.size());
  keys_.assign(keys.begin(), keys.end());
  offsets_ = EvenOffsets(bags, hot);
  hot_ = hot;
  bags_ = bags;
  first_bag_ = FirstOf(me_, ranks, bags);
  bags_of_.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) bags_of_[r] = FirstOf(r + 1, ranks, bags) - FirstOf(r, ranks, bags);
  mine_.resize(bags_of_[me_] * options_.dim);
  gradients_.assign(bags_ * options_.dim, 0.0F);
  std::ranges::copy(gradients, gradients_.begin() + static_cast<std::ptrdiff_t>(first_bag_ * options_.dim));
  if (ranks > 1) {
    partial_.resize(bags_ * options_.dim);
    return;
  }
  resident_ = {{Resident(device_keys_, keys_), keys_.size()},
               {Resident(device_offsets_, offsets_), offsets_.size()}};
  gradients_on_device_ = Resident(device_gradients_, gradients_);
  pooled_ = device_pooled_.Reserve(mine_.size());
}

void ShardedTable::Lookup() {
  Must(shard_->Prepare(Gather(), false), "Prepare");
  Pool();
}

void ShardedTable::TrainStep(const StepScalars& scalars) {
  PrepareAndInsert(Gather());
  Pool();
  GatherGradients();
  shard_->Update(gradients_on_device_, scalars);
}

std::vector<float> ShardedTable::Pooled() {
  if (collective_.size() == 1) device_.Download(mine_.data(), pooled_, mine_.size() * sizeof(float));
  return mine_;
}

std::uint64_t ShardedTable::RowsOfAllRanks() {
  std::uint64_t rows = shard_->Usage().rows;
  collective_.AllReduceSum({&rows, 1});
  return rows;
}

// A copy in memory of the device's own making, on the CPU too.
template <class T>
const T* ShardedTable::Resident(DeviceArray<T>& array, const std::vector<T>& host) {
  T* copy = array.Reserve(host.size());
  device_.Upload(copy, host.data(), host.size() * sizeof(T));
  return copy;
}

// Every rank's part of the batch to every rank. (Each has it all already; what is here is overwritten by what comes.)
BatchView ShardedTable::Gather() {
  if (collective_.size() == 1) return resident_;
  std::vector<std::size_t> bytes(bags_of_);
  for (std::size_t& b : bytes) b *= hot_ * sizeof(Key);
  collective_.AllGatherBlocks(bytes, keys_.data());
  std::ranges::transform(bags_of_, bytes.begin(), [](std::size_t b) { return b * sizeof(std::uint32_t); });
  collective_.AllGatherBlocks(bytes, offsets_.data());
  return {{device_keys_.From(keys_.data(), keys_.size()), keys_.size()},
          {device_offsets_.From(offsets_.data(), offsets_.size()), offsets_.size()}};
}

void ShardedTable::GatherGradients() {
  if (collective_.size() == 1) return;
  std::vector<std::size_t> bytes(bags_of_);
  for (std::size_t& b : bytes) b *= options_.dim * sizeof(float);
  collective_.AllGatherBlocks(bytes, gradients_.data());
  gradients_on_device_ = device_gradients_.From(gradients_.data(), gradients_.size());
}

void ShardedTable::PrepareAndInsert(const BatchView& batch) {
  const NewRows added = Must(shard_->Prepare(batch, true), "no room for rows");
  std::array<std::uint64_t, 2> agreed{shard_->Usage().rows, added.count};
  collective_.AllReduceSum(agreed);
  shard_->Insert();
}

void ShardedTable::Pool() {
  if (collective_.size() == 1) return shard_->Pool(pooled_);
  shard_->Pool(device_pooled_.For(partial_.data(), partial_.size()));
  device_pooled_.To(partial_.data(), partial_.size());
  std::vector<std::size_t> sizes(bags_of_);
  for (std::size_t& s : sizes) s *= options_.dim;
  collective_.ReduceScatter(sizes, partial_.data(), mine_.data());
}

// Any copy from the device waits for what was launched before.
void ShardedTable::Wait() {
  if (device_.SharesHostMemory()) return;
  Key last{0};
  device_keys_.To(&last, 1);
}

}  // namespace slotwise::bench
