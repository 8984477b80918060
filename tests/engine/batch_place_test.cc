// A batch means the same wherever its arrays lie. An engine takes no batch that its client may still write.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "tests/engine/running_engine.h"
#include "tests/support/device_kinds.h"

namespace slotwise::test {
namespace {

class BatchPlaceTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    auto device = GetParam().make(0);
    if (!device) GTEST_SKIP() << "this machine has no GPU";
    place_ = std::make_unique<EnginePlace>(MakeSoloCollective(), std::move(device));
  }
  void TearDown() override {
    engine_.reset();
    for (void* memory : of_device_) place_->device->Free(memory);
  }

  // The values, in the device's memory. REQUIRES: the engine does not run yet.
  template <class T>
  BatchArray<T> OnDevice(const std::vector<T>& values) {
    Device& device = *place_->device;
    auto* const memory = static_cast<T*>(device.Allocate(values.size() * sizeof(T)));
    of_device_.push_back(memory);
    device.Upload(memory, values.data(), values.size() * sizeof(T));
    return {std::shared_ptr<T[]>(memory, [](T*) {}), values.size()};
  }
  BatchPart PartOnDevice(const Bags& bags, const std::vector<float>& values = {}) {
    std::vector<Key> keys;
    for (const std::uint64_t key : bags.keys) keys.push_back(Key{key});
    BatchPart part;
    part.samples = bags.samples;
    part.keys = OnDevice(keys);
    part.offsets = OnDevice(bags.offsets);
    part.weights = OnDevice(bags.weights);
    part.values = OnDevice(values);
    part.memory = MemoryKind::kDevice;
    return part;
  }

  TableId StartWithTable(Combiner combiner = Combiner::kMean) {
    engine_ = std::make_unique<RunningEngine>(*place_, MakeSoloCollective());
    return MakeTable(combiner);
  }
  TableId MakeTable(Combiner combiner = Combiner::kMean) {
    TableOptions options;
    options.name = TableName("ads");
    options.dim = 4;
    options.slots = 2;
    options.combiner = combiner;
    options.initializer = {.low = -1, .high = 1};
    options.optimizer.learning_rate = 0.5F;
    return engine_->Create(options);
  }
  Result<AppliedStep> Push(PushRequest request) {
    std::promise<Result<AppliedStep>> answer;
    request.done = [&](const Result<AppliedStep>& result) { answer.set_value(result); };
    engine_->engine().Submit(std::move(request));
    return answer.get_future().get();
  }
  Result<std::vector<float>> Lookup(LookupRequest request) {
    std::promise<Result<std::vector<float>>> answer;
    request.done = [&](const Result<PooledValues>& pooled) {
      if (!pooled.ok()) return answer.set_value(pooled.status());
      answer.set_value(std::vector<float>(pooled->floats().begin(), pooled->floats().end()));
    };
    engine_->engine().Submit(std::move(request));
    return answer.get_future().get();
  }

  std::unique_ptr<EnginePlace> place_;
  std::vector<void*> of_device_;
  std::unique_ptr<RunningEngine> engine_;
};

INSTANTIATE_TEST_SUITE_P(OnEveryKindOfDevice, BatchPlaceTest,
                         testing::Values(kCpu, kApart, kApartDrawn, kCuda),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(BatchPlaceTest, ABatchInDeviceMemoryMeansWhatItMeansInTheHosts) {
  const Bags bags{2, {7, 8, 7, 9, 1, 8}, {0, 2, 3, 5, 6}, {1, 2, 0.5F, 3, 1, 1}};
  std::vector<float> gradients(16);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i) - 7.5F;
  BatchPart to_look_up = PartOnDevice(bags);
  BatchPart to_push = PartOnDevice(bags, gradients);
  const TableId table = StartWithTable();

  const auto from_host = engine_->Lookup(table, bags);
  const auto from_device = Lookup({table, LookupMode::kTrain, std::move(to_look_up), {}});
  ASSERT_TRUE(from_device.ok()) << from_device.status().message();
  EXPECT_EQ(*from_device, *from_host);

  // The same step in parts: one in the host's memory, one in the device's.
  auto first = engine_->StartPush(table, {1, 1, 0, 2}, bags, gradients);
  ASSERT_TRUE(Push({table, {1, 1, 1, 2}, std::move(to_push), {}}).ok());
  ASSERT_TRUE(first.get().ok());
  const auto mixed = engine_->Lookup(table, bags);
  const auto digest = engine_->Summarize(table).digest;
  ASSERT_TRUE(engine_->Drop(table).ok());

  const TableId again = MakeTable();
  first = engine_->StartPush(again, {1, 1, 0, 2}, bags, gradients);
  ASSERT_TRUE(engine_->Push(again, {1, 1, 1, 2}, bags, gradients).ok());
  ASSERT_TRUE(first.get().ok());
  EXPECT_EQ(*mixed, *engine_->Lookup(again, bags));
  EXPECT_EQ(digest, engine_->Summarize(again).digest);
}

// Lookups that share a round are each answered as they asked, whatever the others asked.
TEST_P(BatchPlaceTest, EveryLookupOfARoundHasNumbersOfItsOwnType) {
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn}) {
    const TableId table = StartWithTable(combiner);
    const Bags bags{2, {7, 8, 7, 9, 1, 8}, {0, 2, 3, 5, 6}, {1, 2, 0.5F, 3, 1, 1}};
    const std::vector<float> exact = *engine_->Lookup(table, bags);
    using enum DataType;
    const std::vector<std::vector<DataType>> rounds{
        {kBFloat16},
        {kFloat16},
        {kBFloat16, kBFloat16},
        {kFloat32, kBFloat16, kBFloat16, kFloat16, kFloat32, kFloat32, kBFloat16}};
    for (const auto& types : rounds) {
      std::vector<Request> requests;
      std::vector<std::promise<Result<PooledValues>>> answers(types.size());
      for (std::size_t i = 0; i < types.size(); ++i) {
        requests.emplace_back(LookupRequest{
            table, LookupMode::kTrain, PartOf(bags),
            [&answers, i](const Result<PooledValues>& pooled) { answers[i].set_value(pooled); }, types[i]});
      }
      engine_->engine().Submit(std::move(requests));
      for (std::size_t i = 0; i < types.size(); ++i) {
        const auto answer = answers[i].get_future().get();
        ASSERT_TRUE(answer.ok()) << answer.status().message();
        ASSERT_EQ(answer->type, types[i]);
        ASSERT_EQ(answer->size, exact.size());
        std::vector<std::byte> expected(exact.size() * BytesOf(types[i]));
        Narrow(exact, types[i], expected.data());
        const std::span found(static_cast<const std::byte*>(answer->values.get()), answer->bytes());
        EXPECT_TRUE(std::ranges::equal(found, expected))
            << ToString(combiner) << ", lookup " << i << " of " << types.size() << ", " << ToString(types[i]);
      }
    }
    engine_.reset();
  }
}

// A round's answers lie where their lookups want them: beside each other or not, of one owner or of two.
TEST_P(BatchPlaceTest, EveryLookupOfARoundHasItsNumbersWhereItWantsThem) {
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean}) {
    const TableId table = StartWithTable(combiner);
    const Bags bags{2, {7, 8, 7, 9, 1, 8}, {0, 2, 3, 5, 6}, {1, 2, 0.5F, 3, 1, 1}};
    const std::vector<float> exact = *engine_->Lookup(table, bags);
    const std::size_t size = exact.size() * sizeof(float);  // 64 bytes
    using enum DataType;
    struct Wish {
      DataType type;
      int owner;  // below 0: no place
      std::size_t at;
    };
    const std::vector<std::vector<Wish>> rounds{
        {{kFloat32, 0, 0}},
        {{kBFloat16, 0, 0}},
        {{kFloat32, 0, 0}, {kFloat32, 0, size}, {kFloat32, 0, 2 * size}},
        {{kFloat32, 0, size}, {kFloat32, 0, 0}},
        {{kFloat32, 0, 0}, {kFloat32, 1, size}, {kFloat32, -1, 0}, {kFloat32, 0, 2 * size}},
        {{kFloat32, -1, 0}, {kFloat32, -1, 0}, {kFloat32, 0, 0}, {kFloat32, -1, 0}},
        {{kFloat32, 0, 0}, {kFloat16, 0, size}, {kFloat16, 0, size + size / 2}, {kFloat32, 1, 2 * size}}};
    for (const auto& wishes : rounds) {
      // Two owners of one block: the second's places adjoin the first's, and it may end before it.
      const auto block = std::make_unique<std::byte[]>(8 * size);
      std::array<std::shared_ptr<std::byte[]>, 2> owners;
      for (auto& owner : owners) owner = std::shared_ptr<std::byte[]>(block.get(), [](std::byte*) {});
      std::vector<Request> requests;
      std::vector<std::promise<Result<PooledValues>>> answers(wishes.size());
      for (std::size_t i = 0; i < wishes.size(); ++i) {
        LookupRequest request{
            table, LookupMode::kTrain, PartOf(bags),
            [&answers, i](const Result<PooledValues>& pooled) { answers[i].set_value(pooled); },
            wishes[i].type};
        if (wishes[i].owner >= 0) {
          request.place = {owners[static_cast<std::size_t>(wishes[i].owner)], block.get() + wishes[i].at};
        }
        requests.emplace_back(std::move(request));
      }
      engine_->engine().Submit(std::move(requests));
      for (std::size_t i = 0; i < wishes.size(); ++i) {
        const auto answer = answers[i].get_future().get();
        ASSERT_TRUE(answer.ok()) << answer.status().message();
        ASSERT_EQ(answer->type, wishes[i].type);
        std::vector<std::byte> expected(exact.size() * BytesOf(wishes[i].type));
        Narrow(exact, wishes[i].type, expected.data());
        const std::span found(static_cast<const std::byte*>(answer->values.get()), answer->bytes());
        EXPECT_TRUE(std::ranges::equal(found, expected)) << ToString(combiner) << ", lookup " << i;
        if (wishes[i].owner < 0) continue;
        EXPECT_EQ(found.data(), block.get() + wishes[i].at);
        const auto& owner = owners[static_cast<std::size_t>(wishes[i].owner)];
        EXPECT_GT(owner.use_count(), 1) << "an answer keeps the memory of its own place";
      }
    }
    engine_.reset();
  }
}

// A step's parts may be of several types, in the host's memory and in the device's.
TEST_P(BatchPlaceTest, GradientsOf16BitsMeanWhatTheyMeanWidened) {
  const Bags bags{2, {7, 8, 7, 9, 1, 8}, {0, 2, 3, 5, 6}};
  std::vector<float> gradients(16);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i) * 0.37F - 2.5F;
  using enum DataType;
  const std::vector<DataType> types{kBFloat16, kFloat32, kFloat16, kBFloat16};
  std::vector<BatchPart> narrow;
  std::vector<std::vector<float>> wide;
  for (std::size_t p = 0; p < types.size(); ++p) {
    std::vector<float> words(types[p] == kFloat32 ? 16 : 8);
    Narrow(gradients, types[p], reinterpret_cast<std::byte*>(words.data()));
    narrow.push_back(p == 3 ? PartOnDevice(bags, words) : PartOf(bags, words));
    narrow.back().value_type = types[p];
    wide.emplace_back(16);
    Widen(reinterpret_cast<const std::byte*>(words.data()), types[p], wide.back());
  }
  const auto parts = static_cast<std::uint32_t>(types.size());
  const auto push = [&](TableId table, auto part_of) {
    std::vector<Request> requests;
    std::vector<std::promise<Result<AppliedStep>>> answers(parts);
    for (std::uint32_t p = 0; p < parts; ++p) {
      requests.emplace_back(
          PushRequest{table, {1, 1, p, parts}, part_of(p), [&answers, p](const Result<AppliedStep>& step) {
                        answers[p].set_value(step);
                      }});
    }
    engine_->engine().Submit(std::move(requests));
    for (auto& answer : answers) ASSERT_TRUE(answer.get_future().get().ok());
  };
  const TableId first = StartWithTable();
  push(first, [&](std::uint32_t p) { return std::move(narrow[p]); });
  const auto digest = engine_->Summarize(first).digest;
  ASSERT_TRUE(engine_->Drop(first).ok());
  const TableId second = MakeTable();
  push(second, [&](std::uint32_t p) { return PartOf(bags, wide[p]); });
  EXPECT_EQ(digest, engine_->Summarize(second).digest);
}

TEST_P(BatchPlaceTest, ABatchThatItsClientMayWriteIsRefused) {
  const TableId table = StartWithTable();
  BatchPart part = PartOf(UnitBags({7, 8}));
  part.samples = 1;
  part.memory = MemoryKind::kShared;
  part.client_may_write = true;
  EXPECT_EQ(Lookup({table, LookupMode::kTrain, std::move(part), {}}).status().code(),
            StatusCode::kInvalidArgument);
  part = PartOf(UnitBags({7, 8}));
  part.samples = 1;
  part.memory = MemoryKind::kShared;
  EXPECT_TRUE(Lookup({table, LookupMode::kTrain, std::move(part), {}}).ok());
}

}  // namespace
}  // namespace slotwise::test
