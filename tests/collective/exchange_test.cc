// Tests every kind of exchange of this machine over the ranks that mpirun starts. Every rank runs every test
// and checks its own part.
#include "server/collective/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "server/collective/host_meeting.h"
#include "server/collective/nccl.h"
#include "server/counters/exchange_counters.h"
#include "tests/support/device_array.h"
#include "tests/support/device_kinds.h"
#include "tests/support/named_pipe.h"
#include "tests/support/same_bytes.h"

namespace slotwise::test {
namespace {

std::unique_ptr<Exchange> Nccl(Device& device, Collective& collective, bool deterministic) {
  std::array<std::uint64_t, 1> cannot{OfferOf(device).version == 0 || CudaDeviceCount() < collective.size()};
  collective.AllReduceSum(cannot);
  return cannot[0] > 0 ? nullptr : MakeNcclExchange(device, device.WorkStream(), collective, {deterministic});
}

struct Way {
  const char* name;
  bool in_rank_order;
  DeviceKind device;
  std::function<std::unique_ptr<Exchange>(Device&, Collective&)> exchange;  // null: it cannot
  HostMemoryUse use = HostMemoryUse::kAllowed;
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

std::unique_ptr<Exchange> Mpi(Device& device, Collective& collective) {
  return MakeMpiExchange(device, device.WorkStream(), collective);
}

const std::vector<Way> kWays{
    {"Mpi", true, kCpu, Mpi},
    {"MpiFromAnotherMemory", true, kApart, Mpi},
    {"MpiAlone", true, kCpu, Mpi, HostMemoryUse::kForbidden},
    {"MpiAloneFromAnotherMemory", true, kApart, Mpi, HostMemoryUse::kForbidden},
    {"MpiFromGpus", true, kCuda, Mpi},
    {"Nccl", false, kCuda, [](Device& device, Collective& c) { return Nccl(device, c, false); }},
    {"NcclInRankOrder", true, kCuda, [](Device& device, Collective& c) { return Nccl(device, c, true); }},
    {"TheOneChosen", true, kCpu,
     [](Device& device, Collective& c) { return std::move(*MakeExchange(device, device.WorkStream(), c)); }},
};

using Sizes = std::vector<std::size_t>;

constexpr std::array kEveryType{DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};

// `value` as it arrives if it travels as `type`.
float Rounded(float value, DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return value;
    case DataType::kFloat16:
      return FromFloat16(ToFloat16(value));
    case DataType::kBFloat16:
      return FromBFloat16(ToBFloat16(value));
  }
  return value;
}

// One of kWays, and what it needs; null what this machine has not.
struct Connected {
  explicit Connected(const Way& way)
      : collective(MakeMpiCollective(way.use)),
        device(way.device.make(collective->local_rank())),
        exchange(device ? way.exchange(*device, *collective) : nullptr) {}

  const std::unique_ptr<Collective> collective;
  const std::unique_ptr<Device> device;
  const std::unique_ptr<Exchange> exchange;
};

class AnExchange : public testing::TestWithParam<Way> {
 protected:
  static void TearDownTestSuite() { kept_.clear(); }

  // From test to test the same: it takes NCCL a second to connect ranks.
  void SetUp() override {
    std::unique_ptr<Connected>& kept = kept_[GetParam().name];
    if (!kept) kept = std::make_unique<Connected>(GetParam());
    Use(*kept);
  }

  void Use(const Connected& connected) {
    collective_ = connected.collective.get();
    device_ = connected.device.get();
    exchange_ = connected.exchange.get();
    if (!device_) GTEST_SKIP() << "this machine has no GPU";
    if (!exchange_) GTEST_SKIP() << "NCCL is not here, or has not a GPU for each rank";
  }

  std::size_t me() const { return static_cast<std::size_t>(Value(collective_->rank())); }
  std::size_t ranks() const { return static_cast<std::size_t>(collective_->size()); }
  template <class Size>
  Sizes SizesOf(Size size) const {
    Sizes sizes(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) sizes[r] = size(r);
    return sizes;
  }
  static std::size_t Sum(const Sizes& sizes, std::size_t ranks) {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(ranks), std::size_t{0});
  }
  template <class T>
  DeviceArray<T> OnDevice(const std::vector<T>& values) {
    return DeviceArray<T>(*device_, std::span<const T>(values));
  }

  // Rounded to `type`, as bytes.
  DeviceArray<std::byte> OnDevice(const std::vector<float>& values, DataType type) {
    std::vector<std::byte> bytes(values.size() * BytesOf(type));
    Narrow(values, type, bytes.data());
    return OnDevice(bytes);
  }
  static std::vector<float> Download(DeviceArray<std::byte>& array, DataType type) {
    const std::vector<std::byte> bytes = array.Download();
    std::vector<float> values(bytes.size() / BytesOf(type));
    Widen(bytes.data(), type, values);
    return values;
  }

  // Blocks of sizes[r] words, of which element i is 1000 r + i.
  void CheckAllGather(const Sizes& sizes) {
    const std::size_t all = Sum(sizes, ranks());
    std::vector<std::uint32_t> expected;
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < sizes[r]; ++i) expected.push_back(static_cast<std::uint32_t>(1000 * r + i));
    }
    std::vector<std::uint32_t> blocks(all, 0);
    const auto first = static_cast<std::ptrdiff_t>(Sum(sizes, me()));
    std::copy_n(expected.begin() + first, sizes[me()], blocks.begin() + first);
    auto array = OnDevice(blocks);
    Sizes bytes = sizes;
    for (std::size_t& b : bytes) b *= sizeof(std::uint32_t);
    exchange_->AllGatherBlocks(bytes, array.data());
    EXPECT_EQ(array.Download(), expected);
  }

  // 1e8 + 3 + 3 ... is another float in another order, so this sees the order too.
  void CheckReduceScatter(const Sizes& sizes) {
    const auto value = [](std::size_t rank, std::size_t i) {
      return rank == 0 ? 1e8F + static_cast<float>(i) : 3.0F + static_cast<float>(rank * i % 100);
    };
    std::vector<float> partial(Sum(sizes, ranks()));
    for (std::size_t i = 0; i < partial.size(); ++i) partial[i] = value(me(), i);
    auto from = OnDevice(partial);
    auto to = OnDevice(std::vector<float>(sizes[me()], -1.0F));
    exchange_->ReduceScatter(sizes, from.data(), to.data());
    const std::vector<float> mine = to.Download();
    const std::size_t first = Sum(sizes, me());
    const bool exactly = GetParam().in_rank_order;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      float expected = value(0, first + i);
      for (std::size_t r = 1; r < ranks(); ++r) expected += value(r, first + i);
      ASSERT_NEAR(mine[i], expected, exactly ? 0 : 32) << "element " << i;
    }
  }

  // Rank r sends rank s a block of size(r, s) elements.
  void CheckAllToAll(DataType type, const std::function<std::size_t(std::size_t, std::size_t)>& size) {
    const auto value = [](std::size_t from, std::size_t to, std::size_t i) {
      return static_cast<float>(10'000 * from + 100 * to + i);
    };
    const Sizes to_sizes = SizesOf([&](std::size_t r) { return size(me(), r); });
    const Sizes from_sizes = SizesOf([&](std::size_t r) { return size(r, me()); });
    std::vector<float> sent;
    std::vector<float> expected;
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < to_sizes[r]; ++i) sent.push_back(value(me(), r, i));
      for (std::size_t i = 0; i < from_sizes[r]; ++i) {
        expected.push_back(Rounded(value(r, me(), i), type));
      }
    }
    auto from = OnDevice(sent, type);
    auto to = OnDevice(std::vector<float>(expected.size(), -1.0F), type);
    exchange_->AllToAll(to_sizes, {from.data(), type}, from_sizes, {to.data(), type});
    EXPECT_EQ(Download(to, type), expected) << ToString(type);
  }

  // The same of 16 bits, which are added in rank order by every exchange. 2048 + 3.25 + 3.25 ... is another
  // number as a half, so this sees that sums are floats; and a sum of zeros below it is +0.
  void CheckReduceScatterOf(DataType type, const Sizes& sizes) {
    const auto value = [](std::size_t rank, std::size_t i) {
      if (i % 11 == 5) return -1e-40F;
      return rank == 0 ? 2048.0F + static_cast<float>(i % 7)
                       : 3.25F + 0.75F * static_cast<float>(rank * i % 5);
    };
    std::vector<float> partial(Sum(sizes, ranks()));
    for (std::size_t i = 0; i < partial.size(); ++i) partial[i] = value(me(), i);
    auto from = OnDevice(partial, type);
    auto to = OnDevice(std::vector<float>(sizes[me()], -1.0F));
    exchange_->ReduceScatter(sizes, {from.data(), type}, to.data());
    const std::size_t first = Sum(sizes, me());
    std::vector<float> expected(sizes[me()], 0.0F);
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += Rounded(value(r, first + i), type);
    }
    EXPECT_TRUE(SameBytes(to.Download(), expected)) << ToString(type);
    from.Download();  // looks past its ends
  }

  Collective* collective_ = nullptr;
  Device* device_ = nullptr;
  Exchange* exchange_ = nullptr;

 private:
  inline static std::map<std::string, std::unique_ptr<Connected>> kept_;
};

INSTANTIATE_TEST_SUITE_P(OfEveryWay, AnExchange, testing::ValuesIn(kWays),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AnExchange, GathersBlocksOfOneSize) {
  CheckAllGather(Sizes(ranks(), 7));
  CheckAllGather(Sizes(ranks(), 100'000));
}

TEST_P(AnExchange, GathersBlocksOfAnySizeEmptyOnesToo) {
  CheckAllGather(SizesOf([](std::size_t r) { return r % 2 == 0 ? 3 * r + 1 : 0; }));
  CheckAllGather(SizesOf([&](std::size_t r) { return r + 1 == ranks() ? 99'999 : 0; }));
}

// A rank's blocks that fit into its place at a meeting by a word, or do not fit by one.
constexpr std::size_t kPlace = HostMeeting::kMostBytes / sizeof(std::uint32_t);

TEST_P(AnExchange, GathersBlocksOfAboutTheMostThatTravelsByAMeeting) {
  for (const std::size_t size : {kPlace - 1, kPlace, kPlace + 1}) {
    CheckAllGather(Sizes(ranks(), size));
    CheckAllGather(SizesOf([&](std::size_t r) { return r == 0 ? size : 3; }));
  }
}

TEST_P(AnExchange, GathersSeveralArraysAtOnce) {
  for (const std::size_t more : {std::size_t{0}, kPlace - 6, kPlace - 5, kPlace}) {
    // Rank r's blocks of three arrays: r + 1 words, none, and 5 + more words on rank 0, else 5.
    const Sizes first = SizesOf([](std::size_t r) { return 4 * (r + 1); });
    const Sizes second(ranks(), 0);
    const Sizes third = SizesOf([&](std::size_t r) { return 4 * (5 + (r == 0 ? more : 0)); });
    const auto expected = [&](const Sizes& bytes, std::uint32_t array) {
      std::vector<std::uint32_t> blocks;
      for (std::size_t r = 0; r < ranks(); ++r)
        blocks.insert(blocks.end(), bytes[r] / 4, static_cast<std::uint32_t>(10 * r + array));
      return blocks;
    };
    const auto mine = [&](const Sizes& bytes, std::uint32_t array) {
      std::vector<std::uint32_t> blocks(Sum(bytes, ranks()) / 4, 999);
      std::fill_n(blocks.begin() + static_cast<std::ptrdiff_t>(Sum(bytes, me()) / 4), bytes[me()] / 4,
                  static_cast<std::uint32_t>(10 * me() + array));
      return blocks;
    };
    auto a = OnDevice(mine(first, 1));
    auto b = OnDevice(mine(third, 2));
    const std::array<Exchange::Blocks, 3> arrays{{{first, a.data()}, {second, nullptr}, {third, b.data()}}};
    exchange_->AllGatherTogether(arrays);
    EXPECT_EQ(a.Download(), expected(first, 1)) << more;
    EXPECT_EQ(b.Download(), expected(third, 2)) << more;
  }
}

TEST_P(AnExchange, AddsBlocksOfAboutTheMostThatTravelsByAMeeting) {
  const std::size_t block = kPlace / ranks();
  for (const std::size_t size : {block - 1, block, block + 1}) {
    CheckReduceScatter(Sizes(ranks(), size));
    CheckReduceScatter(SizesOf([&](std::size_t r) { return r % 2 == 0 ? size : 2; }));
  }
}

TEST_P(AnExchange, BringsSmallBlocksBesideLargeOnes) {
  const std::size_t block = kPlace / ranks();
  for (int turn = 0; turn < 3; ++turn) {
    CheckAllToAll(DataType::kFloat32, [&](std::size_t from, std::size_t to) {
      return (from + to) % 3 == 0 ? block + from : (from + to) % 3 == 1 ? block : from % 2;
    });
    CheckAllToAll(DataType::kBFloat16, [&](std::size_t from, std::size_t to) {
      return from == 0 ? 2 * block + 2 * to : 2 * block - from;
    });
  }
}

TEST_P(AnExchange, MayHaveNothingToBring) {
  const Sizes none(ranks(), 0);
  exchange_->AllGatherBlocks(none, nullptr);
  exchange_->ReduceScatter(none, nullptr, nullptr);
  exchange_->AllToAll(none, nullptr, none, nullptr);
  device_->Wait();
}

TEST_P(AnExchange, AddsBlocksOfOneSize) {
  CheckReduceScatter(Sizes(ranks(), 5));
  CheckReduceScatter(Sizes(ranks(), 64'000));
}

TEST_P(AnExchange, AddsBlocksOfAnySizeEmptyOnesToo) {
  CheckReduceScatter(SizesOf([](std::size_t r) { return 3 * r + 2; }));
  CheckReduceScatter(SizesOf([](std::size_t r) { return 4000 * (r % 2); }));
  CheckReduceScatter(SizesOf([](std::size_t r) { return 4 * (1000 + r); }));
}

TEST_P(AnExchange, AddsBlocksOf16BitNumbersInRankOrderAsFloats) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    for (const std::size_t size : {1, 3, 4, 5, 8, 1001, 64'000})
      CheckReduceScatterOf(type, Sizes(ranks(), size));
    CheckReduceScatterOf(type, SizesOf([](std::size_t r) { return 3 * r + 2; }));
    CheckReduceScatterOf(type, SizesOf([](std::size_t r) { return 4000 * (r % 2); }));
    CheckReduceScatterOf(type, SizesOf([](std::size_t r) { return 4 * (1000 + r); }));
    CheckReduceScatterOf(type, Sizes(ranks(), 0));
  }
}

// Rank r sends rank s a block of r + 2 s elements, none where r = s = 0 or s = 1.
TEST_P(AnExchange, BringsEachRankTheBlocksThatAreForIt) {
  for (const DataType type : kEveryType) {
    CheckAllToAll(type, [](std::size_t from, std::size_t to) { return to == 1 ? 0 : from + 2 * to; });
  }
}

// MPI's are timed all, NCCL's by a sample, those of a rank that is alone not at all. What is timed comes to
// be counted as later operations begin.
TEST_P(AnExchange, SaysHowLongItsOperationsTook) {
  const Sizes sizes(ranks(), 1000);
  const ExchangeStats before = exchange_->Durations();
  constexpr std::uint64_t kTurns = 200;
  for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
    CheckAllGather(sizes);
    CheckReduceScatter(sizes);
    CheckReduceScatter(sizes);
    CheckAllToAll(DataType::kFloat32, [](std::size_t, std::size_t) { return 1000; });
  }
  const ExchangeStats after = exchange_->Durations();
  const std::string name = exchange_->Name();
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::uint64_t calls =
        (i == static_cast<std::size_t>(ExchangeOperation::kReduceScatter) ? 2 : 1) * kTurns;
    const std::uint64_t counted = after[i].count() - before[i].count();
    const std::uint64_t ns = after[i].sum_ns - before[i].sum_ns;
    if (name.starts_with("MPI")) {
      EXPECT_EQ(counted, calls) << i;
    } else if (name.starts_with("NCCL")) {
      EXPECT_GT(counted, calls / 64) << i;
      EXPECT_LT(counted, calls / 4) << i;
    } else {
      EXPECT_EQ(counted, 0U) << i;
    }
    EXPECT_EQ(ns > 0, counted > 0) << i;
    EXPECT_LT(ns, 60'000'000'000U) << i;
  }
}

// What one call leaves the next one takes, from host memory and back, with one wait at the end.
TEST_P(AnExchange, TakesItsPlaceInTheOrderOfTheDevicesWork) {
  constexpr std::size_t kSize = 10'000;
  const std::size_t all = ranks() * kSize;
  const HostMemory host = device_->AllocateHost(all * sizeof(float));
  auto* const values = static_cast<float*>(host.get());
  std::fill_n(values, all, static_cast<float>(me() + 1));
  auto a = OnDevice(std::vector<float>(all));
  auto b = OnDevice(std::vector<float>(all));
  const Sizes sizes(ranks(), kSize);
  for (int turn = 0; turn < 3; ++turn) {
    device_->WorkStream().Copy(a.data(), values, all * sizeof(float));
    exchange_->AllToAll(sizes, a.data(), sizes, b.data());               // block r is now r + 1
    exchange_->ReduceScatter(sizes, b.data(), a.data() + me() * kSize);  // ranks · (me + 1)
    exchange_->AllGatherBlocks(Sizes(ranks(), kSize * sizeof(float)), a.data());
    device_->WorkStream().Copy(values, a.data(), all * sizeof(float));
    device_->Wait();
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t block = i / kSize;
      ASSERT_EQ(values[i], static_cast<float>(ranks() * (block + 1))) << i;
    }
    std::fill_n(values, all, static_cast<float>(me() + 1));
  }
}

// The last rank comes to a call when every other rank's watchdog has said that the call does not end, and not
// before. What each says travels beside MPI, whose thread waits in the call meanwhile. Then the call ends as
// if nothing had been.
class ALateRank : public AnExchange {
 protected:
  void SetUp() override {
    Use(connected_);
    if (!IsSkipped() && ranks() == 1) GTEST_SKIP() << "takes two ranks";
  }

  void CheckReported(const std::string& name, std::size_t bytes, const std::function<void()>& call) {
    call();  // connects the ranks: what is late after this is the operation itself
    const bool late = me() + 1 == ranks();
    const std::shared_ptr<NamedPipe> pipe = PipeToTheLastRank();
    const auto report = std::make_shared<std::promise<std::string>>();
    if (late) {
      AwaitReports(*pipe, name);
    } else {
      collective_->watchdog().Start(kLimit, [pipe, report](const std::string& why) {
        pipe->Send(why);
        report->set_value(why);
      });
    }
    call();
    if (!late) ExpectSays(report->get_future(), name, bytes);
    call();
  }

 private:
  const Connected connected_{GetParam()};  // its own, because its watchdog has reported
  static constexpr std::chrono::milliseconds kLimit{200};
  static constexpr std::chrono::seconds kPatience{60};

  std::unique_ptr<NamedPipe> PipeToTheLastRank() {
    const bool reads = me() + 1 == ranks();
    auto pipe = reads ? std::make_unique<NamedPipe>() : nullptr;
    using Path = std::array<char, 256>;
    Path mine{};
    if (reads) pipe->path().copy(mine.data(), mine.size() - 1);
    std::vector<Path> paths(ranks());
    collective_->AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(paths)));
    return reads ? std::move(pipe) : std::make_unique<NamedPipe>(std::string(paths.back().data()));
  }

  void AwaitReports(NamedPipe& pipe, const std::string& name) {
    for (std::size_t others = ranks() - 1; others > 0; --others) {
      const auto report = pipe.Receive(kPatience);
      if (!report) {
        ADD_FAILURE() << others << " ranks reported nothing";
        return;  // and comes, so that no rank waits for ever
      }
      EXPECT_TRUE(report->starts_with(name + " of ")) << *report;
    }
  }

  static void ExpectSays(std::future<std::string> report, const std::string& name, std::size_t bytes) {
    ASSERT_EQ(report.wait_for(kPatience), std::future_status::ready) << "the watchdog reported nothing";
    const std::string said = report.get();
    std::smatch seconds;
    ASSERT_TRUE(
        std::regex_match(said, seconds, std::regex(R"((\w+ of \d+ bytes) has not ended after (\S+) s)")))
        << said;
    EXPECT_EQ(seconds[1], name + " of " + std::to_string(bytes) + " bytes");
    EXPECT_GE(std::stod(seconds[2]), 0.2);
  }
};

INSTANTIATE_TEST_SUITE_P(OfEveryWay, ALateRank, testing::ValuesIn(kWays),
                         [](const auto& test) { return std::string(test.param.name); });

constexpr std::size_t kBlock = 1000;

TEST_P(ALateRank, IsReportedByThoseThatGatherItsBlock) {
  const std::size_t bytes = ranks() * kBlock * sizeof(std::uint32_t);
  CheckReported("AllGatherBlocks", bytes, [&] { CheckAllGather(Sizes(ranks(), kBlock)); });
}

TEST_P(ALateRank, IsReportedByThoseThatAddItsBlocks) {
  const std::size_t bytes = ranks() * kBlock * sizeof(float);
  CheckReported("ReduceScatter", bytes, [&] { CheckReduceScatter(Sizes(ranks(), kBlock)); });
}

TEST_P(ALateRank, IsReportedByThoseThatItSendsBlocksTo) {
  const std::size_t bytes = ranks() * kBlock * sizeof(float);
  CheckReported("AllToAll", bytes,
                [&] { CheckAllToAll(DataType::kFloat32, [](std::size_t, std::size_t) { return kBlock; }); });
}

class ChoosingAnExchange : public testing::Test {
 protected:
  std::unique_ptr<Collective> collective_ = MakeMpiCollective();
};

TEST_F(ChoosingAnExchange, CpusUseMpi) {
  const auto device = MakeCpuDevice(1);
  const auto exchange = MakeExchange(*device, device->WorkStream(), *collective_);
  ASSERT_TRUE(exchange.ok()) << exchange.status().message();
  EXPECT_EQ((*exchange)->Name(), collective_->size() == 1 ? "copies" : "MPI");
}

TEST_F(ChoosingAnExchange, GpusUseNcclWhereEachRankHasOneToItself) {
  const auto device = kCuda.make(collective_->local_rank());
  if (!device) GTEST_SKIP() << "this machine has no GPU";
  const auto exchange = MakeExchange(*device, device->WorkStream(), *collective_);
  ASSERT_TRUE(exchange.ok()) << exchange.status().message();
  const bool nccl = OfferOf(*device).version > 0 && CudaDeviceCount() >= collective_->size();
  EXPECT_EQ((*exchange)->Name().starts_with("NCCL "), nccl && collective_->size() > 1) << (*exchange)->Name();
}

TEST_F(ChoosingAnExchange, SaysWhyGpusDoWithoutNccl) {
  if (collective_->size() == 1) GTEST_SKIP() << "takes two ranks";
  const auto device = MakeApartDevice(1'000'000);  // says that it is a GPU, which CUDA does not know
  const auto exchange = MakeExchange(*device, device->WorkStream(), *collective_);
  ASSERT_TRUE(exchange.ok()) << exchange.status().message();
  EXPECT_EQ((*exchange)->Name(), "MPI, through the host's memory: rank 0 has no NCCL, or too old a one");
}

TEST_F(ChoosingAnExchange, GpusAndCpusTogetherAreRefusedOnEveryRank) {
  if (collective_->size() == 1) GTEST_SKIP() << "takes two ranks";
  const auto device = MakeApartDevice(Value(collective_->rank()) == 1 ? 0 : -1);
  const auto exchange = MakeExchange(*device, device->WorkStream(), *collective_);
  ASSERT_FALSE(exchange.ok());
  EXPECT_EQ(
      exchange.status(),
      FailedPrecondition("rank 1 has a GPU and rank 0 has none: a server's ranks run all on GPUs or all on "
                         "CPUs (--backend cpu)"));
}

}  // namespace
}  // namespace slotwise::test
