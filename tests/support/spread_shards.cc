#include "tests/support/spread_shards.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/oracle.h"
#include "tests/support/same_bytes.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

using Counts = std::vector<std::size_t>;

std::size_t SumBefore(const Counts& counts, std::size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), std::size_t{0});
}

std::size_t Sum(const Counts& counts) { return SumBefore(counts, counts.size()); }

Counts Times(Counts counts, std::size_t factor) {
  for (std::size_t& count : counts) count *= factor;
  return counts;
}

// The block that `rank` brings of values that lie in rank order.
template <class T>
std::vector<T> BlockOf(const std::vector<T>& values, const Counts& counts, std::size_t rank) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(SumBefore(counts, rank));
  return {begin, begin + static_cast<std::ptrdiff_t>(counts[rank])};
}

// `values` as they are before an exchange: nothing but the block that `rank` brings.
template <class T>
std::vector<T> OnlyBlockOf(const std::vector<T>& values, const Counts& counts, std::size_t rank) {
  std::vector<T> only(values.size());
  std::ranges::copy(BlockOf(values, counts, rank),
                    only.begin() + static_cast<std::ptrdiff_t>(SumBefore(counts, rank)));
  return only;
}

// Of a batch whose bags are shared out as `bags_of`, the keys in each share.
Counts KeysOf(const Batch& batch, const Counts& bags_of) {
  Counts keys;
  for (std::size_t r = 0; r < bags_of.size(); ++r) {
    const std::size_t first = SumBefore(bags_of, r);
    keys.push_back(batch.offsets[first + bags_of[r]] - batch.offsets[first]);
  }
  return keys;
}

// Each bag's offset travels with it, and with the last share the end of the last bag.
Counts OffsetsOf(Counts bags_of) {
  ++bags_of.back();
  return bags_of;
}

}  // namespace

SpreadShards::SpreadShards(Device& device, Collective& collective, Exchange& exchange,
                           OutputDistributor& travel, const TableOptions& options, const BucketMap& owners)
    : device_(device),
      collective_(collective),
      exchange_(exchange),
      travel_(travel),
      arrays_(device),
      options_(options),
      owners_(owners) {
  auto made = device.MakeShard(options, {collective.rank(), collective.size(), owners, kTestSecret});
  if (!made.ok()) throw std::runtime_error("MakeShard: " + made.status().message());
  shard_ = std::move(*made);
}

// --- what ranks tell each other

template <std::size_t N>
std::array<std::uint64_t, N> SpreadShards::Sums(const std::array<std::uint64_t, N>& mine) const {
  const bool failed = testing::Test::HasFailure();
  std::array<std::uint64_t, N + 1> sums{};
  std::ranges::copy(mine, sums.begin());
  sums[N] = failed ? 1 : 0;
  collective_.AllReduceSum(sums);
  if (sums[N] > 0 && !failed) ADD_FAILURE() << "another rank has failed this test: it printed why";
  std::array<std::uint64_t, N> of_all{};
  std::copy_n(sums.begin(), N, of_all.begin());
  return of_all;
}

template <class T>
void SpreadShards::Exchanged(const Counts& counts, DeviceArray<T>& array) {
  exchange_.AllGatherBlocks(Times(counts, sizeof(T)), array.data());
}

template <class T>
std::vector<T> SpreadShards::Together(const std::vector<T>& mine, const Counts& counts) {
  const std::size_t most = std::ranges::max(counts);
  std::vector<T> padded(mine);
  padded.resize(most);
  std::vector<T> blocks(most * ranks());
  collective_.AllGather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(blocks)));
  std::vector<T> all;
  for (std::size_t r = 0; r < ranks(); ++r) {
    const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(r * most);
    all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(counts[r]));
  }
  return all;
}

// --- a batch

SpreadShards::Counts SpreadShards::SharesOf(std::size_t bags) {
  ++turn_;
  Counts shares(ranks());
  if (turn_ % 3 == 0 || ranks() == 1) {  // of one size, if the number of bags allows it
    for (std::size_t r = 0; r < ranks(); ++r) shares[r] = bags * (r + 1) / ranks() - bags * r / ranks();
    return shares;
  }
  // In proportions 0 : 1 : 2 ..., of which each rank gets each in its turn.
  const std::size_t parts = ranks() * (ranks() - 1) / 2;
  for (std::size_t r = 0; r < ranks(); ++r) shares[r] = bags * ((r + turn_) % ranks()) / parts;
  shares[turn_ % ranks()] += bags - Sum(shares);
  return shares;
}

void SpreadShards::Gather(const Batch& batch) {
  bags_of_ = SharesOf(batch.bags());
  const Counts keys_of = KeysOf(batch, bags_of_);
  Batch mine;
  mine.keys = OnlyBlockOf(batch.keys, keys_of, me());
  mine.offsets = OnlyBlockOf(batch.offsets, OffsetsOf(bags_of_), me());
  if (!batch.weights.empty()) mine.weights = OnlyBlockOf(batch.weights, keys_of, me());
  batch_ = std::make_unique<DeviceBatch>(device_, mine);
  Exchanged(keys_of, batch_->keys);
  Exchanged(OffsetsOf(bags_of_), batch_->offsets);
  if (!batch.weights.empty()) Exchanged(keys_of, batch_->weights);
}

Status SpreadShards::Agree(const Status& mine) {
  const auto [failed] = Sums<1>({mine.ok() ? 0U : 1U});
  return failed > 0 && mine.ok() ? ResourceExhausted("another rank has no memory") : mine;
}

Result<InsertedBatch> SpreadShards::Insert(const Batch& batch, PrepareFor purpose) {
  Gather(batch);
  Result<NewBatch> prepared = PrepareRows(purpose, *shard_, batch_->View()).Finish();
  if (Status agreed = Agree(prepared.status()); !agreed.ok()) return agreed;
  if (const std::uint64_t wanted = AgreeOnRows(*prepared); wanted > options_.max_rows)
    return ResourceExhausted("the table would have " + std::to_string(wanted) + " rows");
  const std::uint64_t before = shard_->Usage().rows;
  const NewRows new_rows = prepared->new_rows();
  InsertedBatch inserted = std::move(*prepared).Insert(step_ + 1);
  ExpectHolds(new_rows, shard_->Usage().rows - before);
  return inserted;
}

std::uint64_t SpreadShards::AgreeOnRows(NewBatch& prepared) {
  const NewRows said = prepared.new_rows();
  const auto [before, added, inexact] = Sums<3>({shard_->Usage().rows, said.count, said.exact ? 0U : 1U});
  // Asking for the exact number when it is not needed must do no harm: every other time, ask.
  if ((before + added <= options_.max_rows || inexact == 0) && turn_ % 2 == 0) return before + added;
  const std::uint64_t exact = prepared.ExactNewRows();
  ExpectHolds(said, exact);
  return before + Sums<1>({exact})[0];
}

void SpreadShards::ExpectInputsUnchanged(const Batch& batch) {
  EXPECT_EQ(batch_->keys.Download(), batch.keys) << "not the keys that the ranks brought";
  EXPECT_EQ(batch_->offsets.Download(), batch.offsets) << "not the offsets that the ranks brought";
  EXPECT_EQ(batch_->weights.Download(), batch.weights) << "not the weights that the ranks brought";
}

// --- operations

DistributedBags SpreadShards::Bags(const Batch& batch) const {
  return {bags_of_, batch.keys.size(), options_.dim};
}

std::vector<float> SpreadShards::Pooled(const Batch& batch, FoundBatch& found, OutputDistribution way) {
  // Not-a-number everywhere: an element that is not written will show.
  const std::size_t mine = bags_of_[me()];
  const std::vector<float> unwritten(mine * options_.dim, std::numeric_limits<float>::quiet_NaN());
  DeviceArray<float> pooled(device_, std::span(unwritten));
  travel_.Pool(found, Bags(batch), way, arrays_, pooled.data());
  shard_->DivideBags(device_.WorkStream(),
                     batch_->offsets.span().subspan(SumBefore(bags_of_, me()), mine + 1),
                     batch.weights.empty() ? nullptr : batch_->weights.data(), pooled.data());
  return pooled.Download();
}

Result<std::vector<float>> SpreadShards::Lookup(const Batch& batch, LookupMode mode) {
  std::optional<FoundBatch> found;
  if (mode == LookupMode::kTrain) {
    Result<InsertedBatch> inserted = Insert(batch, PrepareFor::kInsert);
    if (!inserted.ok()) return inserted.status();
    found = std::move(*inserted);
  } else {
    Gather(batch);
    Result<FoundBatch> mine = shard_->PrepareFind(batch_->View());
    if (Status agreed = Agree(mine.status()); !agreed.ok()) return agreed;
    found = std::move(*mine);
  }
  const std::vector<float> mine = Pooled(batch, *found, OutputDistribution::kAllBags);
  EXPECT_TRUE(SameBytes(Pooled(batch, *found, OutputDistribution::kOwnedBags), mine, options_.dim))
      << "all bags and those that travel differ";
  ExpectInputsUnchanged(batch);
  return Together(mine, Times(bags_of_, options_.dim));
}

Status SpreadShards::Push(const Batch& batch, const std::vector<float>& gradients) {
  Result<InsertedBatch> inserted = Insert(batch, PrepareFor::kPush);
  if (!inserted.ok()) return inserted.status();
  const StepScalars scalars = ScalarsOfStep(options_.optimizer, ++step_);
  const Counts elements = Times(bags_of_, options_.dim);
  if (step_ % 2 == 0) {
    const std::vector<float> mine = BlockOf(gradients, elements, me());
    DeviceArray<float> on_device(device_, std::span(mine));
    travel_.Update(std::move(*inserted), Bags(batch), on_device.data(), scalars, arrays_);
    EXPECT_EQ(on_device.Download(), mine) << "Update wrote into the gradients it was given";
  } else {
    const std::vector<float> mine = OnlyBlockOf(gradients, elements, me());
    DeviceArray<float> on_device(device_, std::span(mine));
    Exchanged(elements, on_device);
    std::move(*inserted).Update(on_device.data(), scalars);
    EXPECT_EQ(on_device.Download(), gradients) << "not the gradients that the ranks brought";
  }
  ExpectInputsUnchanged(batch);
  return {};
}

Status SpreadShards::Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records) {
  const Batch batch = OneKeyABag(keys);
  Result<InsertedBatch> inserted = Insert(batch, PrepareFor::kInsert);
  if (!inserted.ok() || keys.empty()) return inserted.status();
  const std::size_t columns = records.size() / keys.size();
  const std::vector<float> mine = OnlyBlockOf(records, Times(bags_of_, columns), me());
  DeviceArray<float> on_device(device_, std::span(mine));
  Exchanged(Times(bags_of_, columns), on_device);
  std::move(*inserted).Assign(on_device.data(), static_cast<std::uint32_t>(columns));
  EXPECT_EQ(on_device.Download(), records) << "not the records that the ranks brought";
  ExpectInputsUnchanged(batch);
  return {};
}

std::uint64_t SpreadShards::Erase(const std::vector<std::uint64_t>& keys) {
  const Batch batch = OneKeyABag(keys);
  Gather(batch);
  Result<ErasableBatch> erasable = shard_->PrepareErase(batch_->View());
  EXPECT_TRUE(Agree(erasable.status()).ok());
  const std::uint64_t before = shard_->Usage().rows;
  const std::uint64_t mine = EraseSaid(std::move(*erasable), keys);
  EXPECT_EQ(shard_->Usage().rows, before - mine);
  ExpectInputsUnchanged(batch);
  return Sums<1>({mine})[0];
}

Status SpreadShards::Alter(const TableOptions& options) {
  device_.Wait();
  const Status mine = shard_->BeginAlter(options, kMaxRowsPerShard);
  const Status all = Agree(mine);
  if (mine.ok()) shard_->EndAlter(all.ok(), step_ + 1);
  if (all.ok()) options_ = options;
  return all;
}

// --- the merged table

DigestSums SpreadShards::Digest() {
  const DigestSums mine = shard_->Digest();
  const auto [low, high] = Sums<2>({mine.low, mine.high});
  return {low, high};
}

std::uint64_t SpreadShards::rows() const { return Sums<1>({shard_->Usage().rows})[0]; }

std::vector<ExportedRow> SpreadShards::Export() {
  const std::size_t stride = RecordFloats(options_);
  std::vector<Key> keys;
  std::vector<float> values;
  for (const ExportedRow& row : ExportOf(*shard_, options_)) {
    EXPECT_EQ(owners_[OracleBucket(Value(row.key))], me())
        << "key " << Value(row.key) << " is not this rank's";
    keys.push_back(row.key);
    values.insert(values.end(), row.values.begin(), row.values.end());
  }
  const Counts rows_of = Together(Counts{keys.size()}, Counts(ranks(), 1));
  const std::vector<Key> all_keys = Together(keys, rows_of);
  const std::vector<float> all_values = Together(values, Times(rows_of, stride));
  std::vector<ExportedRow> rows;
  for (std::size_t i = 0; i < all_keys.size(); ++i) {
    const auto record = all_values.begin() + static_cast<std::ptrdiff_t>(i * stride);
    rows.push_back({all_keys[i], {record, record + static_cast<std::ptrdiff_t>(stride)}});
  }
  std::ranges::sort(rows, {}, &ExportedRow::key);
  return rows;
}

Shard& SpreadShards::shard(int rank) {
  if (Rank{rank} != collective_.rank()) throw std::logic_error("another process has that shard");
  return *shard_;
}

}  // namespace slotwise::test
