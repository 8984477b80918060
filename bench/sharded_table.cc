#include "bench/sharded_table.h"

#include <algorithm>
#include <array>

#include "bench/common_options.h"
#include "bench/workload.h"

namespace slotwise::bench {
namespace {

// A rank's first of n things that ranks share evenly.
std::size_t FirstOf(std::size_t rank, std::size_t ranks, std::size_t n) { return n * rank / ranks; }

template <class T>
void Upload(Device& device, DeviceArray<T>& array, std::span<const T> values) {
  device.Upload(array.Reserve(values.size()), values.data(), values.size_bytes());
}

}  // namespace

ShardedTable::ShardedTable(Device& device, Collective& collective, Exchange& exchange,
                           const TableOptions& options, const TravelOptions& travel)
    : device_(device),
      collective_(collective),
      exchange_(exchange),
      options_(options),
      me_(static_cast<std::size_t>(Value(collective.rank()))),
      shard_(Must(
          device.MakeShard(options, {collective.rank(), collective.size(), EvenBucketMap(collective.size())}),
          "no shard")),
      keys_(device),
      offsets_(device),
      gradients_(device),
      pooled_(device),
      travel_(device, collective, exchange, travel),
      arrays_(device) {}

void ShardedTable::Insert(std::span<const Key> keys) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  Upload<std::uint32_t>(device_, offsets_, EvenOffsets(std::min(kPiece, keys.size()), 1));
  for (std::size_t at = 0; at < keys.size(); at += kPiece) {
    const auto piece = keys.subspan(at, std::min(kPiece, keys.size() - at));
    Upload(device_, keys_, piece);
    PrepareAndInsert({{keys_.data(), piece.size()}, {offsets_.data(), piece.size() + 1}});
  }
  Wait();
}

void ShardedTable::SetBatch(std::span<const Key> keys, std::uint32_t bags, std::uint32_t hot,
                            std::span<const float> gradients) {
  const auto ranks = static_cast<std::size_t>(collective_.size());
  hot_ = hot;
  bags_.dim = options_.dim;
  bags_.keys = keys.size();
  first_bag_ = FirstOf(me_, ranks, bags);
  bags_.bags_of.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    bags_.bags_of[r] = FirstOf(r + 1, ranks, bags) - FirstOf(r, ranks, bags);
  Upload(device_, keys_, keys);
  Upload<std::uint32_t>(device_, offsets_, EvenOffsets(bags, hot));
  float* const all = gradients_.Reserve(std::size_t{bags} * options_.dim);
  device_.Upload(all + first_bag_ * options_.dim, gradients.data(), gradients.size_bytes());
}

void ShardedTable::Lookup() {
  Must(shard_->Prepare(Gather(), false), "Prepare");
  Pool();
}

void ShardedTable::TrainStep(const StepScalars& scalars) {
  PrepareAndInsert(Gather());
  Pool();
  if (way() == Way::kOwnedBags) {
    travel_.Update(*shard_, bags_, gradients_.data() + first_bag_ * options_.dim, scalars, arrays_);
  } else {
    shard_->Update(GatherGradients(), scalars);
  }
}

std::vector<float> ShardedTable::Pooled() {
  std::vector<float> mine(bags_.bags_of[me_] * options_.dim);
  device_.Download(mine.data(), pooled_.data(), mine.size() * sizeof(float));
  return mine;
}

std::uint64_t ShardedTable::RowsOfAllRanks() {
  std::uint64_t rows = shard_->Usage().rows;
  collective_.AllReduceSum({&rows, 1});
  return rows;
}

BatchView ShardedTable::Gather() {
  exchange_.AllGatherBlocks(Shares(hot_ * sizeof(Key)), keys_.data());
  exchange_.AllGatherBlocks(Shares(sizeof(std::uint32_t)), offsets_.data());
  return {{keys_.data(), bags_.keys}, {offsets_.data(), bags_.bags() + 1}};
}

const float* ShardedTable::GatherGradients() {
  exchange_.AllGatherBlocks(Shares(options_.dim * sizeof(float)), gradients_.data());
  return gradients_.data();
}

void ShardedTable::PrepareAndInsert(const BatchView& batch) {
  const NewRows added = Must(shard_->Prepare(batch, true), "no room for rows");
  std::array<std::uint64_t, 2> agreed{shard_->Usage().rows, added.count};
  collective_.AllReduceSum(agreed);
  shard_->Insert();
}

// All of a bag is on the only rank; several have partial sums.
void ShardedTable::Pool() {
  float* const pooled = pooled_.Reserve(my_bags() * std::size_t{options_.dim});
  if (collective_.size() == 1) return shard_->Pool(pooled);
  travel_.Pool(*shard_, bags_, way(), arrays_, pooled);
}

std::vector<std::size_t> ShardedTable::Shares(std::size_t a_bag) const {
  std::vector<std::size_t> shares(bags_.bags_of);
  for (std::size_t& share : shares) share *= a_bag;
  return shares;
}

}  // namespace slotwise::bench
