#include "tests/support/multi_shard.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "tests/support/same_bytes.h"

namespace slotwise::test {

namespace {

std::size_t Sum(std::span<const std::size_t> counts) { return std::reduce(counts.begin(), counts.end()); }

// Not-a-number, as either type of 16 bits too: an element that is not written will show.
template <class T>
constexpr T kUnwritten = std::numeric_limits<float>::quiet_NaN();
template <>
constexpr std::uint16_t kUnwritten<std::uint16_t> = 0x7FFF;

template <class T>
std::vector<float> Widened(const std::vector<T>& values, DataType type) {
  std::vector<float> wide(values.size());
  Widen(reinterpret_cast<const std::byte*>(values.data()), type, wide);
  return wide;
}

}  // namespace

Preparing PrepareRows(PrepareFor purpose, Shard& shard, const BatchView& batch) {
  return purpose == PrepareFor::kPush ? shard.PreparePush(batch) : shard.PrepareInsert(batch);
}

void ExpectHolds(const NewRows& said, std::uint64_t rows) {
  EXPECT_LE(rows, said.count) << "more new rows than Finish said at most";
  if (said.exact) {
    EXPECT_EQ(rows, said.count) << "the count was called exact";
  }
}

std::uint64_t EraseSaid(ErasableBatch batch, const std::vector<std::uint64_t>& keys) {
  std::vector<Key> removed;
  const std::uint64_t count = std::move(batch).Erase(&removed);
  EXPECT_EQ(std::set<Key>(removed.begin(), removed.end()).size(), count);
  EXPECT_EQ(removed.size(), count);
  EXPECT_TRUE(std::ranges::all_of(
      removed, [&](Key key) { return std::ranges::find(keys, Value(key)) != keys.end(); }));
  return count;
}

std::vector<ExportedRow> ExportOf(Shard& shard, const TableOptions& options) {
  const std::vector<Key> keys = shard.Keys();
  const RowRecords rows = shard.Read(keys);
  EXPECT_EQ(rows.keys, keys) << "Keys() named keys that Read() does not find";
  const std::size_t stride = RecordFloats(options);
  EXPECT_EQ(rows.records.size(), keys.size() * stride);
  std::vector<ExportedRow> exported;
  for (std::size_t i = 0; i < rows.keys.size(); ++i) {
    const auto record = rows.records.begin() + static_cast<std::ptrdiff_t>(i * stride);
    exported.push_back({rows.keys[i], {record, record + static_cast<std::ptrdiff_t>(stride)}});
  }
  return exported;
}

MultiShard::MultiShard(std::vector<Device*> devices, const TableOptions& options, int ranks,
                       const BucketMap& owners, DataType partials, const HashSecret& secret)
    : options_(options), partials_(partials), devices_(std::move(devices)) {
  for (int rank = 0; rank < ranks; ++rank) {
    const HashSecret of_rank(secret.low() + static_cast<std::uint64_t>(rank), secret.high());
    auto made = device(rank).MakeShard(options, {Rank{rank}, ranks, owners, of_rank});
    if (!made.ok()) {
      throw std::runtime_error("MakeShard: " + made.status().message());
    }
    shards_.push_back(std::move(*made));
    plans_.push_back(device(rank).MakeAllToAllPlan());
  }
}

Result<std::vector<float>> MultiShard::Lookup(const Batch& batch, LookupMode mode) {
  std::vector<FoundBatch> found;
  if (mode == LookupMode::kTrain) {
    auto inserted = Insert(batch, PrepareFor::kInsert);
    if (!inserted.ok()) return inserted.status();
    for (InsertedBatch& of_rank : *inserted) found.push_back(std::move(of_rank));
  } else {
    found = Find(batch);
  }
  const bool wide = partials_ == DataType::kFloat32;
  const std::vector<float> sums =
      wide ? SumsBothWays<float>(batch, found) : SumsBothWays<std::uint16_t>(batch, found);
  ExpectInputsUnchanged(batch);
  return DividedBagSlices(batch, sums);
}

template <class T>
std::vector<float> MultiShard::SumsBothWays(const Batch& batch, std::vector<FoundBatch>& found) {
  std::vector<float> sums = SumsOverRanks<T>(batch, found);
  EXPECT_TRUE(SameBytes(SumsOfBagsThatTravel<T>(batch, found), sums, options_.dim))
      << "all bags and those that travel differ";
  return sums;
}

// By Pool of every rank: all bags, added in rank order.
template <class T>
std::vector<float> MultiShard::SumsOverRanks(const Batch& batch, std::vector<FoundBatch>& found) {
  const std::size_t size = std::size_t{batch.bags()} * options_.dim;
  std::vector<float> sum(size, 0.0F);
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceArray<T> out(device(rank), std::vector<T>(size, kUnwritten<T>));
    found[rank].Pool({out.data(), partials_});
    const std::vector<float> partial = Widened(out.Download(), partials_);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += partial[i];
    }
  }
  return sum;
}

// By what ranks send each other when only bags travel of which they own keys.
template <class T>
std::vector<float> MultiShard::SumsOfBagsThatTravel(const Batch& batch, std::vector<FoundBatch>& found) {
  for (int rank = 0; rank < ranks(); ++rank) found[rank].PlanAllToAll(BagsOf(batch), *plans_[rank]);
  std::vector<std::vector<T>> sent;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::size_t owned = Sum(plans_[rank]->Traffic().with_keys_here);
    DeviceArray<T> out(device(rank), std::vector<T>(owned * options_.dim, kUnwritten<T>));
    found[rank].PoolToSend(*plans_[rank], {out.data(), partials_});
    sent.push_back(out.Download());
  }
  std::vector<float> sums;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::vector<T> arrived =
        Arrived(sent, rank, &BagTraffic::with_keys_here, &BagTraffic::with_keys_there);
    DeviceArray<T> received(device(rank), std::span<const T>(arrived));
    DeviceArray<float> mine(device(rank),
                            std::vector<float>(BagsOf(batch)[rank] * options_.dim, kUnwritten<float>));
    plans_[rank]->AddReceived(device(rank).WorkStream(), {received.data(), partials_}, mine.data());
    EXPECT_EQ(received.Download(), arrived) << "AddReceived wrote into what it was given";
    const std::vector<float> added = mine.Download();
    sums.insert(sums.end(), added.begin(), added.end());
  }
  return sums;
}

std::vector<std::size_t> MultiShard::BagsOf(const Batch& batch) const {
  std::vector<std::size_t> bags_of;
  for (int r = 0; r < ranks(); ++r) {
    bags_of.push_back(std::uint64_t{batch.bags()} * (r + 1) / ranks() -
                      std::uint64_t{batch.bags()} * r / ranks());
  }
  return bags_of;
}

// What arrives at `rank` of rows that all sent: as many as it expects from each.
template <class T>
std::vector<T> MultiShard::Arrived(const std::vector<std::vector<T>>& sent, int rank, OutputDistribution out,
                                   OutputDistribution in) {
  std::vector<T> arrived;
  for (int from = 0; from < ranks(); ++from) {
    const std::vector<std::size_t>& counts = plans_[from]->Traffic().*out;
    EXPECT_EQ(counts[rank], (plans_[rank]->Traffic().*in)[from]);
    const std::size_t first = Sum(std::span(counts).first(rank)) * options_.dim;
    const auto begin = sent[from].begin() + static_cast<std::ptrdiff_t>(first);
    arrived.insert(arrived.end(), begin, begin + static_cast<std::ptrdiff_t>(counts[rank] * options_.dim));
  }
  return arrived;
}

Status MultiShard::Push(const Batch& batch, const std::vector<float>& gradients) {
  auto inserted = Insert(batch, PrepareFor::kPush);
  if (!inserted.ok()) return inserted.status();
  const StepScalars scalars = ScalarsOfStep(options_.optimizer, ++step_);
  if (step_ % 2 == 0) {
    UpdateByGradientsThatTravel(batch, *inserted, gradients, scalars);
    ExpectInputsUnchanged(batch);
    return {};
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceArray<float> on_device(device(rank), std::span<const float>(gradients));
    InsertedBatch& mine = (*inserted)[rank];
    if (step_ % 4 == 1) {
      GroupedBatch grouped = std::move(mine).GroupRows();
      if (step_ % 8 == 1) grouped.PlanSums();
      std::move(grouped).Update(on_device.data(), scalars);
    } else {
      std::move(mine).Update(on_device.data(), scalars);
    }
    EXPECT_EQ(on_device.Download(), gradients) << "Update wrote into the gradients it was given";
  }
  ExpectInputsUnchanged(batch);
  return {};
}

void MultiShard::UpdateByGradientsThatTravel(const Batch& batch, std::vector<InsertedBatch>& inserted,
                                             const std::vector<float>& gradients,
                                             const StepScalars& scalars) {
  for (int rank = 0; rank < ranks(); ++rank) inserted[rank].PlanAllToAll(BagsOf(batch), *plans_[rank]);
  std::vector<std::vector<float>> sent;
  std::size_t first = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::size_t count = BagsOf(batch)[rank] * options_.dim;
    DeviceArray<float> mine(device(rank), std::span(gradients).subspan(first, count));
    first += count;
    DeviceArray<float> out(device(rank),
                           std::vector<float>(Sum(plans_[rank]->Traffic().with_keys_there) * options_.dim));
    inserted[rank].GradientsToSend(*plans_[rank], mine.data(), out.data());
    sent.push_back(out.Download());
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::vector<float> arrived =
        Arrived(sent, rank, &BagTraffic::with_keys_there, &BagTraffic::with_keys_here);
    DeviceArray<float> received(device(rank), std::span<const float>(arrived));
    std::move(inserted[rank]).UpdateFromReceived(*plans_[rank], received.data(), scalars);
    EXPECT_EQ(received.Download(), arrived) << "UpdateFromReceived wrote into what it was given";
  }
}

Status MultiShard::Import(const std::vector<std::uint64_t>& keys, const std::vector<float>& records) {
  const Batch batch = OneKeyABag(keys);
  auto inserted = Insert(batch, PrepareFor::kInsert);
  if (!inserted.ok() || keys.empty()) return inserted.status();
  const auto columns = static_cast<std::uint32_t>(records.size() / keys.size());
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceArray<float> on_device(device(rank), std::span<const float>(records));
    std::move((*inserted)[rank]).Assign(on_device.data(), columns);
    EXPECT_EQ(on_device.Download(), records) << "Assign wrote into the records it was given";
  }
  ExpectInputsUnchanged(batch);
  return {};
}

std::uint64_t MultiShard::Erase(const std::vector<std::uint64_t>& keys) {
  const Batch batch = OneKeyABag(keys);
  Upload(batch);
  std::vector<ErasableBatch> erasable;
  for (int rank = 0; rank < ranks(); ++rank)
    erasable.push_back(std::move(*shards_[rank]->PrepareErase(batches_[rank]->View())));
  std::uint64_t erased = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::uint64_t before = shards_[rank]->Usage().rows;
    const std::uint64_t mine = EraseSaid(std::move(erasable[rank]), keys);
    EXPECT_EQ(shards_[rank]->Usage().rows, before - mine);
    erased += mine;
  }
  ExpectInputsUnchanged(batch);
  return erased;
}

void MultiShard::Upload(const Batch& batch) {
  batches_.clear();
  for (int rank = 0; rank < ranks(); ++rank)
    batches_.push_back(std::make_unique<DeviceBatch>(device(rank), batch));
}

std::vector<FoundBatch> MultiShard::Find(const Batch& batch) {
  Upload(batch);
  std::vector<FoundBatch> found;
  for (int rank = 0; rank < ranks(); ++rank)
    found.push_back(std::move(*shards_[rank]->PrepareFind(batches_[rank]->View())));
  return found;
}

Result<std::vector<InsertedBatch>> MultiShard::Insert(const Batch& batch, PrepareFor purpose) {
  Upload(batch);
  std::vector<NewBatch> prepared;
  for (int rank = 0; rank < ranks(); ++rank) {
    Result<NewBatch> mine = PrepareRows(purpose, *shards_[rank], batches_[rank]->View()).Finish();
    if (!mine.ok()) return mine.status();
    prepared.push_back(std::move(*mine));
  }
  if (const std::uint64_t wanted = AgreeOnRows(prepared); wanted > options_.max_rows)
    return ResourceExhausted("the table would have " + std::to_string(wanted) + " rows");
  std::vector<InsertedBatch> inserted;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::uint64_t before = shards_[rank]->Usage().rows;
    const NewRows new_rows = prepared[rank].new_rows();
    inserted.push_back(std::move(prepared[rank]).Insert(step_ + 1));
    ExpectHolds(new_rows, shards_[rank]->Usage().rows - before);
  }
  return inserted;
}

std::uint64_t MultiShard::AgreeOnRows(std::vector<NewBatch>& prepared) {
  std::uint64_t wanted = rows();
  bool exact = true;
  for (const NewBatch& mine : prepared) {
    wanted += mine.new_rows().count;
    exact = exact && mine.new_rows().exact;
  }
  // Asking for the exact number when it is not needed must do no harm: every other time, ask.
  if ((wanted <= options_.max_rows || exact) && step_ % 2 == 0) return wanted;
  wanted = rows();
  for (NewBatch& mine : prepared) {
    const NewRows said = mine.new_rows();
    wanted += mine.ExactNewRows();
    ExpectHolds(said, mine.new_rows().count);
  }
  return wanted;
}

std::vector<float> MultiShard::DividedBagSlices(const Batch& batch, std::vector<float> values) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto first = static_cast<std::uint32_t>(std::uint64_t{batch.bags()} * rank / ranks());
    const auto last = static_cast<std::uint32_t>(std::uint64_t{batch.bags()} * (rank + 1) / ranks());
    // The offsets as that rank received them with its own samples: they begin at 0.
    std::vector<std::uint32_t> offsets(batch.offsets.begin() + first, batch.offsets.begin() + last + 1);
    for (std::uint32_t& offset : offsets) {
      offset -= batch.offsets[first];
    }
    std::vector<float> weights;
    if (!batch.weights.empty()) {
      weights.assign(batch.weights.begin() + batch.offsets[first],
                     batch.weights.begin() + batch.offsets[last]);
    }
    const std::size_t begin = std::size_t{first} * options_.dim;
    const std::size_t count = std::size_t{last - first} * options_.dim;
    DeviceArray<std::uint32_t> device_offsets(device(rank), std::span<const std::uint32_t>(offsets));
    DeviceArray<float> slice(device(rank), std::span<const float>(values).subspan(begin, count));
    DeviceArray<float> device_weights(device(rank), std::span<const float>(weights));
    shards_[rank]->DivideBags(device(rank).WorkStream(), device_offsets.span(),
                              batch.weights.empty() ? nullptr : device_weights.data(), slice.data());
    const std::vector<float> divided = slice.Download();
    std::copy(divided.begin(), divided.end(), values.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return values;
}

void MultiShard::ExpectInputsUnchanged(const Batch& batch) {
  for (const auto& copy : batches_) {
    EXPECT_EQ(copy->keys.Download(), batch.keys) << "the shard wrote into the keys it was given";
    EXPECT_EQ(copy->offsets.Download(), batch.offsets) << "the shard wrote into the offsets it was given";
    EXPECT_EQ(copy->weights.Download(), batch.weights) << "the shard wrote into the weights it was given";
  }
}

DigestSums MultiShard::Digest() {
  DigestSums sum;
  for (const auto& shard : shards_) {
    const DigestSums part = shard->Digest();
    sum.low += part.low;
    sum.high += part.high;
  }
  return sum;
}

// An alteration that is given up comes first, and changes nothing.
Status MultiShard::Alter(const TableOptions& options) {
  for (const bool kept : {false, true}) {
    Status all;
    std::vector<Shard*> begun;
    for (int rank = 0; rank < ranks(); ++rank) {
      device(rank).Wait();
      const Status mine = shards_[rank]->BeginAlter(options, kMaxRowsPerShard);
      if (mine.ok()) begun.push_back(shards_[rank].get());
      if (!mine.ok()) all = mine;
    }
    for (Shard* const shard : begun) shard->EndAlter(kept && all.ok(), step_ + 1);
    if (!all.ok()) return all;
  }
  options_ = options;
  return {};
}

std::uint64_t MultiShard::rows() const {
  std::uint64_t rows = 0;
  for (const auto& shard : shards_) {
    rows += shard->Usage().rows;
  }
  return rows;
}

std::vector<ExportedRow> MultiShard::Export() {
  std::vector<ExportedRow> rows;
  for (const auto& shard : shards_) {
    for (ExportedRow& row : ExportOf(*shard, options_)) {
      rows.push_back(std::move(row));
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const ExportedRow& a, const ExportedRow& b) { return a.key < b.key; });
  return rows;
}

}  // namespace slotwise::test
