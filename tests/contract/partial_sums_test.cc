// Partial sums that travel between ranks in 16 bits are each rounded once, and added as float32 on arrival.
#include <bit>
#include <cmath>
#include <limits>

#include "slotwise/data_type.h"
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class PartialSums : public ContractTest {};
SLOTWISE_ON_EVERY_BACKEND(PartialSums);

constexpr DataType kHalves[] = {DataType::kFloat16, DataType::kBFloat16};

// Keys that `rank` of `ranks` owns.
std::vector<std::uint64_t> KeysOf(int rank, int ranks, std::size_t count) {
  const BucketMap owners = EvenBucketMap(ranks);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; keys.size() < count; ++key) {
    if (owners[OracleBucket(key)] == rank) keys.push_back(key);
  }
  return keys;
}

// Every dim takes another tile, or ends in the middle of one.
TEST_P(PartialSums, AreRoundedOnceForEveryLengthOfARow) {
  const std::uint64_t seed = Seed(81);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const DataType type : kHalves) {
    for (const std::uint32_t dim :
         {1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 32, 48, 64, 65, 100, 128, 130, 256, 260}) {
      SCOPED_TRACE(std::string(ToString(type)) + ", dim " + std::to_string(dim));
      CheckedTable table(device(), MakeOptions(dim), 3, EvenBucketMap(3), type);
      Batch batch = RandomBatch(random, {.bags = 90, .max_bag = 10, .distinct_keys = 300});
      table.Lookup(batch, LookupMode::kTrain);
      table.PushRandom(batch, random);
      AddRandomWeights(random, batch);
      table.Lookup(batch, LookupMode::kEval);
    }
  }
}

TEST_P(PartialSums, AreRoundedBeforeTheCombinerDivides) {
  const std::uint64_t seed = Seed(82);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const DataType type : kHalves) {
    for (const Combiner combiner : kEveryCombiner) {
      for (const int ranks : {2, 4, 8}) {
        SCOPED_TRACE(std::string(ToString(type)) + ", " + std::string(ToString(combiner)) + ", " +
                     std::to_string(ranks) + " ranks");
        CheckedTable table(device(), MakeOptions(6, combiner, OptimizerKind::kAdam), ranks,
                           EvenBucketMap(ranks), type);
        for (int step = 0; step < 3; ++step) {
          Batch batch = RandomBatch(random, {.bags = 120, .max_bag = 12, .distinct_keys = 500});
          if (step == 1) AddRandomWeights(random, batch);
          table.Lookup(batch, step == 2 ? LookupMode::kEval : LookupMode::kTrain);
          table.PushRandom(batch, random);
        }
        table.Lookup(Batch(), LookupMode::kTrain);
        table.Lookup(Batch({{}, {}, {}}), LookupMode::kTrain);
        table.ExpectRowsMatch();
      }
    }
  }
}

// Rows and optimizer state never are: only what travels is.
TEST_P(PartialSums, LeaveRowsAndTheirUpdatesAlone) {
  const auto train = [&](DataType type) {
    CheckedTable table(device(), MakeOptions(12, Combiner::kMean, OptimizerKind::kAdaGrad), 4,
                       EvenBucketMap(4), type);
    Random random(83);
    for (int step = 0; step < 4; ++step) {
      const Batch batch = RandomBatch(random, {});
      table.Lookup(batch, LookupMode::kTrain);
      table.PushRandom(batch, random);
    }
    return table.shards().Digest();
  };
  const DigestSums wide = train(DataType::kFloat32);
  for (const DataType type : kHalves) EXPECT_EQ(train(type), wide) << ToString(type);
}

// The floats around every number of 16 bits and around the middle between each and the next: ties,
// subnormals, what rounds to zero, what overflows. Rows of each kind of length, so that every tile's stores
// meet all of them.
std::vector<float> Telling(DataType type) {
  const auto wide = [&](std::uint32_t bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    return type == DataType::kFloat16 ? FromFloat16(half) : FromBFloat16(half);
  };
  const std::uint32_t infinity = type == DataType::kFloat16 ? 0x7C00 : 0x7F80;
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const auto low = std::bit_cast<std::uint32_t>(wide(bits));
    const double below = static_cast<double>(wide(bits));
    const double next = bits + 1 < infinity ? static_cast<double>(wide(bits + 1))
                                            : 2 * below - static_cast<double>(wide(bits - 1));
    const auto middle = std::bit_cast<std::uint32_t>(static_cast<float>((below + next) / 2));
    const std::uint32_t sign = bits % 3 == 0 ? 0x8000'0000U : 0;
    for (const std::uint32_t near : {low, middle - 1, middle, middle + 1}) {
      values.push_back(std::bit_cast<float>(near | sign));
    }
  }
  const float past = type == DataType::kFloat16 ? 65520.0F : 0x1.FFp127F;
  for (const float value : {past, -past, std::nextafter(past, 0.0F), std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min(),
                            -std::numeric_limits<float>::denorm_min()}) {
    values.push_back(value);
  }
  return values;
}

TEST_P(PartialSums, RoundEveryNumberToTheNearestOneAndTiesToEven) {
  constexpr int kRanks = 2;
  for (const DataType type : kHalves) {
    const std::vector<float> telling = Telling(type);
    for (const std::uint32_t dim : {5, 16, 64, 128}) {
      SCOPED_TRACE(std::string(ToString(type)) + ", dim " + std::to_string(dim));
      TableOptions options = MakeOptions(dim);
      options.initial_rows = telling.size() / dim + 1;
      CheckedTable table(device(), options, kRanks, EvenBucketMap(kRanks), type);
      std::vector<float> records = telling;
      records.resize((records.size() + dim - 1) / dim * dim, 1.0F);
      const std::vector<std::uint64_t> keys = KeyRange(0, records.size() / dim);
      ASSERT_TRUE(table.Import(keys, records));
      table.Lookup(OneKeyABag(keys), LookupMode::kEval);
    }
  }
}

// A negative sum too small for the type becomes -0 on its way. Sums begin from +0 where they are added, so it
// makes no difference whether the other ranks' zeros came along.
TEST_P(PartialSums, ThatRoundToMinusZeroAreAddedToZero) {
  constexpr int kRanks = 3;
  for (const DataType type : kHalves) {
    const float tiny = type == DataType::kFloat16 ? -0x1p-26F : -std::numeric_limits<float>::denorm_min();
    CheckedTable table(device(), MakeOptions(4), kRanks, EvenBucketMap(kRanks), type);
    std::vector<std::uint64_t> keys;
    for (int rank = 0; rank < kRanks; ++rank) keys.push_back(KeysOf(rank, kRanks, 1)[0]);
    ASSERT_TRUE(table.Import(keys, std::vector<float>(keys.size() * 4, tiny)));
    const Batch batch({{keys[0]}, {keys[1], keys[2]}, {keys[0], keys[1], keys[2]}, {}});
    table.Lookup(batch, LookupMode::kEval);
    const std::vector<float> pooled = *table.shards().Lookup(batch, LookupMode::kEval);
    EXPECT_TRUE(SameBytes(pooled, std::vector<float>(16, 0.0F)));
  }
}

TEST_P(PartialSums, ThatAreTooLargeAreInfinite) {
  constexpr int kRanks = 2;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::uint64_t here = KeysOf(0, kRanks, 1)[0];
  const std::vector<std::uint64_t> there = KeysOf(1, kRanks, 2);
  for (const std::uint32_t dim : {3, 4}) {
    const auto pooled_of = [&](DataType type, const std::vector<float>& of_keys, const Batch& batch) {
      MultiShard shards({&device()}, MakeOptions(dim), kRanks, EvenBucketMap(kRanks), type);
      std::vector<float> records;
      for (const float value : of_keys) records.insert(records.end(), dim, value);
      EXPECT_TRUE(shards.Import({here, there[0], there[1]}, records).ok());
      return *shards.Lookup(batch, LookupMode::kEval);
    };
    const Batch separate({{here}, {there[0]}, {here, there[0]}, {here, there[0], there[1]}});
    const std::vector<float> sums = pooled_of(DataType::kFloat16, {65504.0F, 40'000.0F, 30'000.0F}, separate);
    EXPECT_EQ(sums[0], 65504.0F);
    EXPECT_EQ(sums[dim], 40'000.0F);
    EXPECT_EQ(sums[2 * dim], 105'504.0F) << "each fits, and the sum is a float";
    EXPECT_EQ(sums[3 * dim], kInfinity) << "the second rank's 70,000 does not";
    for (const DataType type : kHalves) {
      const std::vector<float> infinite = pooled_of(type, {-kInfinity, 100.0F, 100.0F}, separate);
      EXPECT_EQ(infinite[0], -kInfinity);
      EXPECT_EQ(infinite[2 * dim], -kInfinity);
    }
  }
}

// Of infinities of both signs. Processors write a NaN in bits of their own, so bytes are not compared.
TEST_P(PartialSums, ThatAreNoNumbersStaySo) {
  constexpr int kRanks = 2;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::uint64_t plus = KeysOf(0, kRanks, 1)[0];
  const std::uint64_t minus = KeysOf(0, kRanks, 2)[1];
  for (const DataType type : kHalves) {
    for (const std::uint32_t dim : {3, 4, 64}) {
      const auto made = [&](int rank) {
        return std::move(
            *device().MakeShard(MakeOptions(dim), {Rank{rank}, kRanks, EvenBucketMap(kRanks), kTestSecret}));
      };
      const std::unique_ptr<Shard> shard = made(0);
      std::vector<float> records(dim, infinity);
      records.insert(records.end(), dim, -infinity);
      DeviceBatch rows(device(), OneKeyABag({plus, minus}));
      auto inserted = shard->PrepareInsert(rows.View()).Insert();
      ASSERT_TRUE(inserted.ok());
      DeviceArray<float> on_device(device(), std::span<const float>(records));
      std::move(*inserted).Assign(on_device.data(), dim);

      DeviceBatch batch(device(), OneBag({plus, minus}));
      auto found = shard->PrepareFind(batch.View());
      ASSERT_TRUE(found.ok());
      DeviceArray<std::uint16_t> partial(device(), std::vector<std::uint16_t>(dim, 0));
      found->Pool({partial.data(), type});
      for (const std::uint16_t half : partial.Download()) {
        EXPECT_TRUE(std::isnan(type == DataType::kFloat16 ? FromFloat16(half) : FromBFloat16(half))) << half;
      }
      const std::unique_ptr<AllToAllPlan> plan = device().MakeAllToAllPlan();
      found->PlanAllToAll(std::vector<std::size_t>{1, 0}, *plan);
      found->PoolToSend(*plan, {partial.data(), type});
      DeviceArray<float> sums(device(), std::vector<float>(dim, 0.0F));
      plan->AddReceived(device().WorkStream(), {partial.data(), type}, sums.data());
      for (const float sum : sums.Download()) EXPECT_TRUE(std::isnan(sum)) << sum;
    }
  }
}

}  // namespace
}  // namespace slotwise::test
