#include "bench/sharded_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bench/common_options.h"
#include "bench/workload.h"

namespace slotwise::bench {
namespace {

// Returns the first index of a rank's even share of n items.
std::size_t FirstOf(std::size_t rank, std::size_t ranks, std::size_t n) { return n * rank / ranks; }

template <class T>
void Upload(Device& device, DeviceArray<T>& array, std::span<const T> values) {
  device.Upload(array.Reserve(values.size()), values.data(), values.size_bytes());
}

Table TableOf(Device& device, const Collective& collective, TableId id, const TableOptions& options) {
  const ShardPlace place{collective.rank(), collective.size(), EvenBucketMap(collective.size()),
                         kBenchSecret};
  return {.info = {id, options},
          .shard = Must(device.MakeShard(options, place), "no shard"),
          .learning_rate = options.optimizer.learning_rate};
}

}  // namespace

ShardedTable::ShardedTable(Device& device, Collective& collective, Exchange& exchange,
                           const TableOptions& options, const DistributionOptions& travel)
    : device_(device),
      collective_(collective),
      exchange_(exchange),
      me_(static_cast<std::size_t>(Value(collective.rank()))),
      table_(TableOf(device, collective, TableId{1}, options)),
      keys_(device),
      offsets_(device),
      gradients_(device),
      pooled_(device),
      work_(device, collective, exchange, travel),
      arrays_(device) {
  if (!options.has_candidates()) return;
  candidates_.emplace(TableOf(device, collective, IdOfCandidates(TableId{1}), CandidatesOf(options)));
}

void ShardedTable::ReserveCandidates(std::uint64_t keys) {
  Must(candidates_->shard->Reserve(keys), "no room for keys to count");
}

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
  bags_.dim = dim();
  bags_.keys = keys.size();
  first_bag_ = FirstOf(me_, ranks, bags);
  bags_.bags_of.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    bags_.bags_of[r] = FirstOf(r + 1, ranks, bags) - FirstOf(r, ranks, bags);
  Upload(device_, keys_, keys);
  Upload<std::uint32_t>(device_, offsets_, EvenOffsets(bags, hot));
  float* const all = gradients_.Reserve(std::size_t{bags} * dim());
  device_.Upload(all + first_bag_ * dim(), gradients.data(), gradients.size_bytes());
}

void ShardedTable::Lookup() {
  const std::array<TableWork::Share, 1> batch{{{&table_, Gather()}}};
  Pool(Must(work_.Prepare(batch), "Prepare").front());
}

void ShardedTable::TrainStep(const StepScalars& scalars) {
  InsertedBatch& batch = PrepareAndInsert(Gather());
  Pool(batch);
  Update(std::move(batch), scalars);
}

void ShardedTable::Push(const StepScalars& scalars) {
  const std::array<TableWork::Share, 1> share{ShareOf(Gather())};
  Update(std::move(Must(work_.PrepareAndInsert(share, PrepareFor::kPush), "no room for rows").front()),
         scalars);
  work_.CountCandidates(share);
}

void ShardedTable::Update(InsertedBatch batch, const StepScalars& scalars) {
  if (work_.TakesMineAlone(bags_, true)) {
    const float* const mine = gradients_.data() + first_bag_ * dim();
    return work_.UpdateByMine(table_, std::move(batch), bags_, mine, scalars, arrays_);
  }
  const float* const all = GatherGradients();
  work_.Update(table_, std::move(batch).GroupRows(), all, scalars);
}

std::vector<float> ShardedTable::Pooled() {
  std::vector<float> mine(bags_.bags_of[me_] * dim());
  device_.Download(mine.data(), pooled_.data(), mine.size() * sizeof(float));
  return mine;
}

std::uint64_t ShardedTable::RowsOfAllRanks() {
  std::uint64_t rows = table_.shard->Usage().rows;
  collective_.AllReduceSum({&rows, 1});
  return rows;
}

BatchView ShardedTable::Gather() {
  exchange_.AllGatherBlocks(Shares(hot_ * sizeof(Key)), keys_.data());
  exchange_.AllGatherBlocks(Shares(sizeof(std::uint32_t)), offsets_.data());
  return {{keys_.data(), bags_.keys}, {offsets_.data(), bags_.bags() + 1}};
}

const float* ShardedTable::GatherGradients() {
  exchange_.AllGatherBlocks(Shares(dim() * sizeof(float)), gradients_.data());
  return gradients_.data();
}

TableWork::Share ShardedTable::ShareOf(const BatchView& batch) {
  return {.table = &table_, .batch = batch, .candidates = candidates_ ? &*candidates_ : nullptr};
}

InsertedBatch& ShardedTable::PrepareAndInsert(const BatchView& batch) {
  const std::array<TableWork::Share, 1> share{{{&table_, batch}}};
  return Must(work_.PrepareAndInsert(share), "no room for rows").front();
}

void ShardedTable::Pool(FoundBatch& batch) {
  work_.Pool(table_, batch, bags_, arrays_, pooled_.Reserve(my_bags() * std::size_t{dim()}));
}

std::vector<std::size_t> ShardedTable::Shares(std::size_t a_bag) const {
  std::vector<std::size_t> shares(bags_.bags_of);
  for (std::size_t& share : shares) share *= a_bag;
  return shares;
}

}  // namespace slotwise::bench
