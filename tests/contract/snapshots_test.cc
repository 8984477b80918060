// A snapshot reads the shard as it was when the snapshot began, whatever batches do meanwhile. Deltas rebuild
// a table. Snapshots do not change how a shard moves its rows.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/contract/contract_test.h"
#include "tests/support/device_batch.h"
#include "tests/support/table_shards.h"

namespace slotwise::test {
namespace {

using Records = std::map<std::uint64_t, std::vector<float>>;
constexpr StepScalars kStep{.learning_rate = 0.5F, .adam_rate = 0.25F};
constexpr auto kAsItIs = [](FoundBatch&) {};  // nothing is done before a batch changes rows

void ExpectSame(const Records& actual, const Records& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [key, record] : expected) {
    ASSERT_TRUE(actual.contains(key)) << what << ": key " << key;
    ASSERT_TRUE(SameBytes(actual.at(key), record)) << what << ": key " << key;
  }
}

// One rank's shard, driven batch by batch, that may have a snapshot open.
class Driven {
 public:
  Driven(Device& device, const TableOptions& options, int ranks)
      : device_(device),
        options_(options),
        floats_(RecordFloats(options)),
        shard_(std::move(*device.MakeShard(options, {Rank{0}, ranks, EvenBucketMap(ranks), kTestSecret}))) {}

  Shard& shard() { return *shard_; }
  std::size_t floats() const { return floats_; }

  Records Contents() {
    Records contents;
    for (ExportedRow& row : ExportOf(*shard_, options_)) contents[Value(row.key)] = std::move(row.values);
    return contents;
  }

  // `before` is called with the batch when that is about to change rows.
  template <class Before>
  void Push(const Batch& batch, const std::vector<float>& gradients, Before before) {
    DeviceBatch on_device(device_, batch);
    DeviceArray<float> values(device_, std::span(gradients));
    InsertedBatch prepared = Insert(shard_->PreparePush(on_device.View()));
    before(prepared);
    std::move(prepared).Update(values.data(), kStep);
  }
  template <class Before>
  void PushReceived(const Batch& batch, const std::vector<float>& gradients, int ranks, Before before) {
    DeviceBatch on_device(device_, batch);
    InsertedBatch prepared = Insert(shard_->PreparePush(on_device.View()));
    const auto plan = device_.MakeAllToAllPlan();
    std::vector<std::size_t> bags_of(static_cast<std::size_t>(ranks), 0);
    bags_of[0] = batch.bags();
    prepared.PlanAllToAll(bags_of, *plan);
    const std::size_t mine = plan->Traffic().with_keys_here[0];
    const std::vector<float> first(gradients.begin(),
                                   gradients.begin() + static_cast<std::ptrdiff_t>(mine * options_.dim));
    DeviceArray<float> values(device_, std::span(first));
    before(prepared);
    std::move(prepared).UpdateFromReceived(*plan, values.data(), kStep);
  }
  template <class Before>
  void Assign(const Batch& batch, const std::vector<float>& values, std::uint32_t columns, Before before) {
    DeviceBatch on_device(device_, batch);
    DeviceArray<float> records(device_, std::span(values));
    InsertedBatch prepared = Insert(shard_->PrepareInsert(on_device.View()));
    before(prepared);
    std::move(prepared).Assign(records.data(), columns);
  }
  void Train(const Batch& batch) {
    DeviceBatch on_device(device_, batch);
    Insert(shard_->PrepareInsert(on_device.View()));
  }
  template <class Before>
  void Erase(const Batch& batch, Before before) {
    DeviceBatch on_device(device_, batch);
    auto erasable = shard_->PrepareErase(on_device.View());
    ASSERT_TRUE(erasable.ok());
    before(*erasable);
    std::move(*erasable).Erase();
  }
  void Load(const Records& records) {
    std::vector<Key> keys;
    std::vector<float> all;
    for (const auto& [key, record] : records) {
      keys.push_back(Key{key});
      all.insert(all.end(), record.begin(), record.end());
    }
    ASSERT_TRUE(shard_->Load(keys, all.data()).ok());
  }

  std::set<std::uint64_t> inserted;  // by the last batch

 private:
  InsertedBatch Insert(Preparing preparing) {
    std::set<std::uint64_t> before;
    for (const Key key : shard_->Keys()) before.insert(Value(key));
    InsertedBatch batch = std::move(*std::move(preparing).Insert());
    inserted.clear();
    for (const Key key : batch.InsertedKeys()) {
      EXPECT_FALSE(before.contains(Value(key))) << Value(key);
      EXPECT_TRUE(inserted.insert(Value(key)).second) << "named twice";
    }
    EXPECT_EQ(shard_->Usage().rows, before.size() + inserted.size());
    return batch;
  }

  Device& device_;
  const TableOptions options_;
  const std::size_t floats_;
  std::unique_ptr<Shard> shard_;
};

// An open snapshot, what it has to read as, and what was read.
class Reading {
 public:
  Reading(Device& device, Driven& table, const SnapshotOptions& options, Random& random)
      : stream_(device.MakeStream()), table_(table), expected_(table.Contents()) {
    auto begun = table.shard().BeginSnapshot(options);
    if (!begun.ok()) throw std::runtime_error(begun.status().message());
    info = std::move(begun->info);
    snapshot_ = begun->snapshot;
    EXPECT_EQ(info.rows.size(), info.keys.size());
    for (std::uint32_t i = 0; i < info.keys.size(); ++i) order_.push_back(i);
    // Threads may have given keys other rows and places; what the test does comes of its seed alone.
    std::ranges::sort(order_, {}, [this](std::uint32_t i) { return Value(info.keys[i]); });
    random.Shuffle(order_);
  }

  bool done() const { return next_ == order_.size(); }
  const Records& expected() const { return expected_; }
  const Records& read() const { return read_; }

  void ReadSome(std::size_t most) {
    const std::size_t n = std::min(most, order_.size() - next_);
    std::vector<RowIndex> rows;
    for (std::size_t i = 0; i < n; ++i) rows.push_back(info.rows[order_[next_ + i]]);
    std::vector<float> records(n * table_.floats(), std::numeric_limits<float>::quiet_NaN());
    snapshot_->Read(*stream_, rows, records.data());
    stream_->Wait();
    for (std::size_t i = 0; i < n; ++i, ++next_) {
      const auto record = records.begin() + static_cast<std::ptrdiff_t>(i * table_.floats());
      read_[Value(info.keys[order_[next_]])] = {record,
                                                record + static_cast<std::ptrdiff_t>(table_.floats())};
    }
  }

  ShardSnapshot& snapshot() { return *snapshot_; }

  SnapshotInfo info;

 private:
  std::unique_ptr<Stream> stream_;
  ShardSnapshot* snapshot_ = nullptr;
  Driven& table_;
  const Records expected_;
  std::vector<std::uint32_t> order_;
  std::size_t next_ = 0;
  Records read_;
};

class Snapshots : public ContractTest {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }

  static Batch SomeBatch(Random& random) {
    const std::vector<BatchShape> shapes{
        {.bags = 40, .max_bag = 1, .distinct_keys = 400},
        {.bags = 60, .max_bag = 8, .distinct_keys = 1500, .hot_percent = 20},
        {.bags = 5, .max_bag = 300, .distinct_keys = 300, .hot_percent = 60},
        {.bags = 30, .max_bag = 2, .distinct_keys = 10, .special_percent = 60},
        {.bags = 3, .max_bag = 2, .distinct_keys = 4000},
        {.bags = 0},
    };
    return RandomBatch(random, random.OneOf(shapes));
  }
  static Batch OneKeyBags(const Batch& batch) {
    std::vector<std::uint64_t> keys;
    for (const Key key : batch.keys) keys.push_back(Value(key));
    return OneKeyABag(keys);
  }
};
SLOTWISE_ON_EVERY_BACKEND(Snapshots);

// A shard with snapshots, one without, and a replica that is made of the snapshots alone.
class SnapshotsBesideBatches {
 public:
  SnapshotsBesideBatches(Device& device, const TableOptions& options, int ranks, Random& random)
      : device_(device),
        options_(options),
        ranks_(ranks),
        random_(random),
        table_(device, options, ranks),
        plain_(device, options, ranks),
        replica_(std::make_unique<Driven>(device, options, ranks)) {
    EXPECT_TRUE(table_.shard().TrackChanges(1'000'000).ok());
  }

  void Operate(const Batch& batch, const Batch& one_key_bags) {
    const std::vector<float> gradients = RandomGradients(random_, batch.bags() * std::size_t{options_.dim});
    const auto make_room = [this](FoundBatch& changing) { MakeRoom(changing); };
    switch (random_.Below(8)) {
      case 0:
      case 1:
        table_.Push(batch, gradients, make_room);
        plain_.Push(batch, gradients, kAsItIs);
        NoteChanged(batch);
        break;
      case 2:
        table_.PushReceived(batch, gradients, ranks_, make_room);
        plain_.PushReceived(batch, gradients, ranks_, kAsItIs);
        NoteChanged(batch);
        break;
      case 3: {
        const auto columns = static_cast<std::uint32_t>(random_.OneIn(2) ? table_.floats() : options_.dim);
        const std::vector<float> values =
            RandomGradients(random_, one_key_bags.bags() * std::size_t{columns});
        table_.Assign(one_key_bags, values, columns, make_room);
        plain_.Assign(one_key_bags, values, columns, kAsItIs);
        NoteChanged(batch);
        break;
      }
      case 4:
        table_.Train(batch);
        plain_.Train(batch);
        for (const std::uint64_t key : table_.inserted) changed_.insert(key);
        break;
      case 5: {
        table_.Erase(one_key_bags, make_room);
        plain_.Erase(one_key_bags, kAsItIs);
        break;
      }
      default:
        if (!open_) return Begin();
        open_->ReadSome(random_.Below(400));
        if (open_->done()) End();
    }
    ASSERT_EQ(table_.shard().Digest(), plain_.shard().Digest());
  }

  void Finish() {
    if (open_) {
      open_->ReadSome(SIZE_MAX);
      End();
    }
  }

  int kept = 0;
  int kept_deltas = 0;
  int waits = 0;

 private:
  // What a push has to do before it changes rows.
  void MakeRoom(FoundBatch& changing) {
    if (!open_) {
      EXPECT_EQ(changing.CopyBeforeWrite(), 0U);
      return;
    }
    while (changing.CopyBeforeWrite() > 0) {
      ++waits;
      ASSERT_FALSE(open_->done()) << "all was read, and yet a row has to be saved";
      open_->ReadSome(1 + random_.Below(20));
    }
    EXPECT_EQ(changing.CopyBeforeWrite(), 0U) << "asked twice";
    if (random_.OneIn(2)) open_->ReadSome(random_.Below(20));
  }

  void NoteChanged(const Batch& batch) {
    for (const Key key : batch.keys) changed_.insert(Value(key));
  }

  void Begin() {
    SnapshotOptions options;
    options.remember = random_.OneIn(2);
    options.changed_only = kept > 0 && !random_.OneIn(4);
    options.max_copy_on_write_bytes = random_.OneOf(
        std::vector<std::size_t>{0, 4, (table_.floats() + 1) * 4, (table_.floats() + 1) * 4 * 7, 1 << 20});
    begun_with_ = options;
    open_ = std::make_unique<Reading>(device_, table_, options, random_);
    EXPECT_LE(open_->snapshot().Room(), options.max_copy_on_write_bytes / ((table_.floats() + 1) * 4));
    if (options.changed_only) {
      for (const Key key : open_->info.keys) EXPECT_TRUE(changed_.contains(Value(key))) << Value(key);
    } else {
      EXPECT_TRUE(open_->info.erased.empty());
    }
    if (options.remember) taken_ = std::exchange(changed_, {});
  }

  void End() {
    Records rows;
    for (const Key key : open_->info.keys) {
      ASSERT_TRUE(open_->expected().contains(Value(key))) << Value(key);
      rows[Value(key)] = open_->expected().at(Value(key));
    }
    ExpectSame(open_->read(), rows, "the snapshot");
    if (!begun_with_.changed_only) ExpectSame(open_->read(), open_->expected(), "a snapshot of all rows");
    const bool keep = !random_.OneIn(3);
    open_->snapshot().End(keep);
    if (keep && begun_with_.remember) {
      ++kept;
      if (begun_with_.changed_only) ++kept_deltas;
      ApplyToReplica();
    } else {
      changed_.insert(taken_.begin(), taken_.end());
    }
    taken_.clear();
    open_.reset();
  }

  void ApplyToReplica() {
    if (!begun_with_.changed_only) replica_ = std::make_unique<Driven>(device_, options_, ranks_);
    std::vector<std::uint64_t> erased;
    for (const Key key : open_->info.erased) erased.push_back(Value(key));
    replica_->Erase(OneKeyABag(erased), kAsItIs);
    replica_->Load(open_->read());
    ExpectSame(replica_->Contents(), open_->expected(), "the replica");
  }

  Device& device_;
  const TableOptions options_;
  const int ranks_;
  Random& random_;
  Driven table_;
  Driven plain_;
  std::unique_ptr<Driven> replica_;
  std::unique_ptr<Reading> open_;
  SnapshotOptions begun_with_;
  std::set<std::uint64_t> changed_;  // since the last snapshot that remembers
  std::set<std::uint64_t> taken_;    // by the open one
};

TEST_P(Snapshots, ReadAsTheShardWasAndRebuildIt) {
  int kept_deltas = 0;
  int waits = 0;
  for (std::uint64_t run = 0; run < 18 && !HasFailure(); ++run) {
    const std::uint64_t seed = Seed(3000) + run;
    SCOPED_TRACE(SeedNote(seed));
    Random random(seed);
    const int ranks = random.OneIn(3) ? 2 : 1;
    const TableOptions options = MakeOptions(random.OneOf(std::vector<std::uint32_t>{1, 3, 8, 20}),
                                             Combiner::kSum, kEveryOptimizer[run % kEveryOptimizer.size()]);
    SnapshotsBesideBatches test(device(), options, ranks, random);
    for (int i = 0; i < 300 && !HasFailure(); ++i) {
      SCOPED_TRACE("operation " + std::to_string(i));
      const Batch batch = SomeBatch(random);
      test.Operate(batch, OneKeyBags(batch));
    }
    if (!HasFailure()) test.Finish();
    kept_deltas += test.kept_deltas;
    waits += test.waits;
  }
  EXPECT_GT(kept_deltas, 100) << "chains were short";
  EXPECT_GT(waits, 100) << "budgets were never short";
}

TEST_P(Snapshots, LetNoBatchChangeRowsThatThereIsNoRoomToSave) {
  Random random(1);
  Driven table(device(), MakeOptions(4), 1);
  const Batch batch = OneKeyABag(KeyRange(0, 50));
  const std::vector<float> gradients = RandomGradients(random, 50 * 4);
  table.Push(batch, gradients, kAsItIs);
  Reading reading(device(), table, {.max_copy_on_write_bytes = 10 * 20}, random);
  EXPECT_EQ(reading.snapshot().Room(), 10U);
  const DigestSums before = table.shard().Digest();
  const auto expect_missing = [](FoundBatch& changing) { EXPECT_EQ(changing.CopyBeforeWrite(), 40U); };
  EXPECT_THROW(table.Push(batch, gradients, kAsItIs), std::logic_error);
  EXPECT_THROW(table.Push(batch, gradients, expect_missing), std::logic_error);
  EXPECT_EQ(reading.snapshot().Room(), 10U);
  EXPECT_THROW(table.Assign(batch, gradients, 4, kAsItIs), std::logic_error);
  EXPECT_THROW(table.PushReceived(batch, gradients, 1, kAsItIs), std::logic_error);
  EXPECT_THROW(table.Erase(batch, kAsItIs), std::logic_error);
  EXPECT_EQ(table.shard().Digest(), before);
  table.Push(OneKeyABag(KeyRange(0, 10)), RandomGradients(random, 10 * 4), kAsItIs);
  EXPECT_EQ(reading.snapshot().Room(), 0U) << "who does not ask has its rows saved all the same";
  table.Push(OneKeyABag(KeyRange(0, 10)), RandomGradients(random, 10 * 4), kAsItIs);
  reading.ReadSome(SIZE_MAX);
  EXPECT_EQ(reading.snapshot().Room(), 10U);
  table.Push(batch, gradients, kAsItIs);
  ExpectSame(reading.read(), reading.expected(), "the snapshot");
  reading.snapshot().End(true);
}

TEST_P(Snapshots, SaveARowOnceHoweverOftenItChanges) {
  Random random(2);
  Driven table(device(), MakeOptions(3), 1);
  table.Push(OneKeyABag(KeyRange(0, 100)), RandomGradients(random, 300), kAsItIs);
  Reading reading(device(), table, {.max_copy_on_write_bytes = 1 << 20}, random);
  EXPECT_EQ(reading.snapshot().Room(), 100U) << "no more than there are rows to save";
  for (int i = 0; i < 5; ++i) {
    table.Push(OneBag({7, 7, 8, 7, 200}), RandomGradients(random, 3), kAsItIs);
    EXPECT_EQ(reading.snapshot().Room(), 98U);
  }
  table.Erase(OneKeyABag({7, 9}), kAsItIs);
  EXPECT_EQ(reading.snapshot().Room(), 97U);
  reading.ReadSome(SIZE_MAX);
  ExpectSame(reading.read(), reading.expected(), "the snapshot");
  reading.snapshot().End(false);
}

TEST_P(Snapshots, KeepRowsOfErasedKeysThatNewKeysGet) {
  Random random(3);
  Driven table(device(), MakeOptions(5, Combiner::kSum, OptimizerKind::kRowWiseAdaGrad), 1);
  table.Push(OneKeyABag(KeyRange(0, 30)), RandomGradients(random, 150), kAsItIs);
  table.Erase(OneKeyABag({28, 29}), kAsItIs);
  Reading reading(device(), table, {.max_copy_on_write_bytes = 1 << 20}, random);
  EXPECT_EQ(reading.info.keys.size(), 28U) << "rows that no key has are not in it";
  table.Erase(OneKeyABag({1, 2, 3}), kAsItIs);
  table.Push(OneKeyABag(KeyRange(100, 10)), RandomGradients(random, 50), kAsItIs);
  reading.ReadSome(SIZE_MAX);
  ExpectSame(reading.read(), reading.expected(), "the snapshot");
  reading.snapshot().End(true);
}

TEST_P(Snapshots, MayBeginBehindAnInsert) {
  Random random(9);
  Driven table(device(), MakeOptions(3), 1);
  table.Push(OneKeyABag(KeyRange(0, 20)), RandomGradients(random, 60), kAsItIs);
  SnapshotOptions options{.max_copy_on_write_bytes = 1 << 20};
  Reading first(device(), table, options, random);
  std::unique_ptr<Reading> second;
  table.Push(OneKeyABag(KeyRange(10, 20)), RandomGradients(random, 60), [&](FoundBatch& changing) {
    EXPECT_EQ(changing.CopyBeforeWrite(), 0U);
    first.snapshot().End(true);
    second = std::make_unique<Reading>(device(), table, options, random);
  });
  second->ReadSome(SIZE_MAX);
  EXPECT_EQ(second->read().size(), 30U);
  ExpectSame(second->read(), second->expected(), "the second snapshot");
  second->snapshot().End(true);
}

TEST_P(Snapshots, OfAnEmptyShardHaveNoRows) {
  Driven table(device(), MakeOptions(3), 1);
  Random random(4);
  Reading reading(device(), table, {.max_copy_on_write_bytes = 1 << 20}, random);
  EXPECT_TRUE(reading.done());
  table.Push(OneKeyABag(KeyRange(0, 3000)), RandomGradients(random, 9000), kAsItIs);
  reading.ReadSome(SIZE_MAX);
  EXPECT_EQ(reading.snapshot().Room(), 0U);
  reading.snapshot().End(true);
}

TEST_P(Snapshots, AreOneAtATime) {
  Driven table(device(), MakeOptions(3), 1);
  Random random(5);
  EXPECT_THROW(table.shard().BeginSnapshot({.remember = true}).ok(), std::logic_error)
      << "nothing is tracked";
  Reading reading(device(), table, {}, random);
  EXPECT_THROW(table.shard().BeginSnapshot({}).ok(), std::logic_error);
  EXPECT_THROW(table.shard().TrackChanges(1).ok(), std::logic_error);
  EXPECT_THROW(table.shard().Load({}, nullptr).ok(), std::logic_error);
  const auto stream = device().MakeStream();
  const std::vector<RowIndex> unused_rows{RowIndex{0}};
  std::vector<float> record(3);
  EXPECT_THROW(reading.snapshot().Read(*stream, unused_rows, record.data()), std::logic_error);
  reading.snapshot().End(true);
  EXPECT_THROW(reading.snapshot().Room(), std::logic_error) << "it has ended";
  EXPECT_THROW(reading.snapshot().End(true), std::logic_error);
  EXPECT_TRUE(table.shard().TrackChanges(1).ok());
}

class ChangesOfAShard : public Snapshots {
 protected:
  static std::vector<std::uint64_t> Sorted(const std::vector<Key>& keys) {
    std::vector<std::uint64_t> sorted;
    for (const Key key : keys) sorted.push_back(Value(key));
    std::ranges::sort(sorted);
    return sorted;
  }
  using Ids = std::vector<std::uint64_t>;
};
SLOTWISE_ON_EVERY_BACKEND(ChangesOfAShard);

TEST_P(ChangesOfAShard, AreCountedFromWhenTheyAreTracked) {
  Driven table(device(), MakeOptions(3), 1);
  Random random(6);
  table.Train(OneKeyABag(KeyRange(0, 2000)));
  EXPECT_EQ(table.shard().BeginSnapshot({.changed_only = true}).status().code(),
            StatusCode::kFailedPrecondition);
  ASSERT_TRUE(table.shard().TrackChanges(10).ok());
  table.Train(OneKeyABag({1, 2, 5000}));
  table.Push(OneBag({7, 8, 7}), RandomGradients(random, 3), kAsItIs);
  table.Erase(OneKeyABag({3, 9999}), kAsItIs);
  auto delta = table.shard().BeginSnapshot({.changed_only = true});
  ASSERT_TRUE(delta.ok());
  EXPECT_EQ(Sorted(delta->info.keys), (Ids{7, 8, 5000}));
  EXPECT_EQ(Sorted(delta->info.erased), (Ids{3}));
  delta->snapshot->End(true);
}

TEST_P(ChangesOfAShard, AreOnlyForgottenByASnapshotThatRemembersAndIsKept) {
  Driven table(device(), MakeOptions(3), 1);
  ASSERT_TRUE(table.shard().TrackChanges(10).ok());
  table.Train(OneKeyABag({1, 2, 3}));
  table.Erase(OneKeyABag({3}), kAsItIs);
  const auto expect = [&](const SnapshotOptions& options, bool kept, const Ids& keys, const Ids& erased) {
    auto delta = table.shard().BeginSnapshot(options);
    ASSERT_TRUE(delta.ok());
    EXPECT_EQ(Sorted(delta->info.keys), keys);
    EXPECT_EQ(Sorted(delta->info.erased), erased);
    if (options.remember && !kept) {
      table.Train(OneKeyABag({4}));  // while it is open
      table.Erase(OneKeyABag({2}), kAsItIs);
    }
    delta->snapshot->End(kept);
  };
  expect({.changed_only = true}, true, {1, 2}, {3});
  SnapshotOptions remember{.changed_only = true, .remember = true, .max_copy_on_write_bytes = 1 << 20};
  expect(remember, false, {1, 2}, {3});
  expect(remember, true, {1, 4}, {2, 3});
  expect(remember, true, {}, {});
  table.Train(OneKeyABag({3}));
  table.Erase(OneKeyABag({3}), kAsItIs);
  table.Train(OneKeyABag({3}));
  expect(remember, true, {3}, {3});
}

TEST_P(ChangesOfAShard, AreCountedInATableThatGrows) {
  Driven table(device(), MakeOptions(64, Combiner::kSum, OptimizerKind::kAdam), 1);
  ASSERT_TRUE(table.shard().TrackChanges(10).ok());
  table.Train(OneKeyABag(KeyRange(0, 15'000)));
  const auto changed = [&] {
    auto delta = table.shard().BeginSnapshot({.changed_only = true, .remember = true});
    if (!delta.ok()) return SIZE_MAX;
    delta->snapshot->End(true);
    return delta->info.keys.size();
  };
  EXPECT_EQ(changed(), 15'000U);
  EXPECT_EQ(changed(), 0U);
  table.Train(OneKeyABag(KeyRange(14'990, 30)));
  EXPECT_EQ(changed(), 20U);
}

TEST_P(ChangesOfAShard, AreUnknownOnceTooManyKeysWereErased) {
  Driven table(device(), MakeOptions(3), 1);
  ASSERT_TRUE(table.shard().TrackChanges(3).ok());
  table.Train(OneKeyABag(KeyRange(0, 20)));
  table.Erase(OneKeyABag({0, 1, 2}), kAsItIs);
  const auto refused = [&] {
    auto delta = table.shard().BeginSnapshot({.changed_only = true});
    if (delta.ok()) delta->snapshot->End(true);
    return !delta.ok() && delta.status().code() == StatusCode::kFailedPrecondition &&
           delta.status().message().find("take a base") != std::string::npos;
  };
  EXPECT_FALSE(refused());
  SnapshotOptions base{.remember = true, .max_copy_on_write_bytes = 1 << 20};
  const auto begin = [&] { return table.shard().BeginSnapshot(base)->snapshot; };
  ShardSnapshot* const open = begin();
  table.Erase(OneKeyABag({4}), kAsItIs);
  open->End(false);
  EXPECT_TRUE(refused()) << "three before, and one while a snapshot was open that was not kept";
  begin()->End(false);
  EXPECT_TRUE(refused());
  begin()->End(true);
  EXPECT_FALSE(refused());
  table.Erase(OneKeyABag({5, 6, 7, 8}), kAsItIs);
  EXPECT_TRUE(refused());
}

class BulkLoads : public Snapshots {};
SLOTWISE_ON_EVERY_BACKEND(BulkLoads);

TEST_P(BulkLoads, ReplaceRecordsAndAddRows) {
  for (const OptimizerKind kind : kEveryOptimizer) {
    SCOPED_TRACE(ToString(kind));
    Random random(7);
    Driven table(device(), MakeOptions(5, Combiner::kSum, kind), 1);
    Records expected;
    for (int chunk = 0; chunk < 12; ++chunk) {
      Records some;
      std::vector<std::uint64_t> keys = KeyRange(random.Below(3000), 1 + random.Below(1500));
      keys.insert(keys.end(), SpecialKeys().begin(), SpecialKeys().end());
      for (const std::uint64_t key : keys) some[key] = RandomGradients(random, table.floats());
      table.Load(some);
      for (const auto& [key, record] : some) expected[key] = record;
      table.Erase(OneKeyABag(KeyRange(100 * static_cast<std::uint64_t>(chunk), 90)), kAsItIs);
      for (const std::uint64_t key : KeyRange(100 * static_cast<std::uint64_t>(chunk), 90))
        expected.erase(key);
    }
    ExpectSame(table.Contents(), expected, "the table");
  }
}

TEST_P(BulkLoads, PastTheBoundChangeNothing) {
  TableOptions options = MakeOptions(2);
  options.max_rows = 100;
  Driven table(device(), options, 1);
  Random random(8);
  const auto load = [&](std::uint64_t first, std::uint64_t count) {
    std::vector<Key> keys;
    for (const std::uint64_t key : KeyRange(first, count)) keys.push_back(Key{key});
    return table.shard().Load(keys, RandomGradients(random, 2 * count).data()).code();
  };
  EXPECT_EQ(load(0, 90), StatusCode::kOk);
  const DigestSums before = table.shard().Digest();
  EXPECT_EQ(load(80, 21), StatusCode::kResourceExhausted);
  EXPECT_EQ(table.shard().Digest(), before);
  EXPECT_EQ(load(10, 90), StatusCode::kOk) << "ten of them are new";
  EXPECT_EQ(load(0, 100), StatusCode::kOk);
  EXPECT_EQ(load(0, 0), StatusCode::kOk);
  EXPECT_EQ(table.shard().Usage().rows, 100U);
  EXPECT_EQ(table.shard().Reserve(100).code(), StatusCode::kOk);
  EXPECT_EQ(table.shard().Reserve(101).code(), StatusCode::kResourceExhausted);
}

TEST_P(BulkLoads, CountAsChanges) {
  Driven table(device(), MakeOptions(2), 1);
  ASSERT_TRUE(table.shard().Reserve(5000).ok());
  const std::uint64_t cells = table.shard().Usage().cells;
  table.Train(OneKeyABag(KeyRange(0, 50)));
  ASSERT_TRUE(table.shard().TrackChanges(10).ok());
  table.Load({{7, {1, 2}}, {5000, {3, 4}}});
  EXPECT_EQ(table.shard().Usage().cells, cells);
  auto delta = table.shard().BeginSnapshot({.changed_only = true});
  ASSERT_TRUE(delta.ok());
  EXPECT_EQ(delta->info.keys.size(), 2U);
  delta->snapshot->End(true);
}

TEST_P(BulkLoads, ForgetThePreparedBatch) {
  Driven table(device(), MakeOptions(2), 1);
  const Batch batch = OneKeyABag({1, 2});
  DeviceBatch on_device(device(), batch);
  auto prepared = table.shard().PrepareInsert(on_device.View()).Finish();
  ASSERT_TRUE(prepared.ok());
  table.Load({{7, {1, 2}}});
  EXPECT_THROW(std::move(*prepared).Insert(), std::logic_error);
  auto inserted = table.shard().PrepareInsert(on_device.View()).Insert();
  ASSERT_TRUE(inserted.ok());
  table.shard().FreeScratch();
  EXPECT_THROW(inserted->InsertedKeys(), std::logic_error);
}

}  // namespace
}  // namespace slotwise::test
