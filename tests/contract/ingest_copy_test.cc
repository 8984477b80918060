// IngestCopy reads arrays that another process may write once, and all its results are about the copies.
#include "kernels/ingest_copy.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "slotwise/data_type.h"
#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

using Kind = ArrivingArray::Kind;
using Bytes = std::vector<std::byte>;

// The words of 32 bits that an array is hashed as: of what was copied, and widened.
std::vector<std::uint32_t> WordsOf(const ArrivingArray& array, const Bytes& copy) {
  std::vector<std::uint32_t> words;
  if (array.kind == Kind::kNumbers && array.type != DataType::kFloat32) {
    std::vector<float> wide(array.size);
    Widen(copy.data(), array.type, wide);
    for (const float number : wide) words.push_back(std::bit_cast<std::uint32_t>(number));
    return words;
  }
  words.resize(array.kind == Kind::kKeys ? 2 * array.size : array.size);
  if (!words.empty()) std::memcpy(words.data(), copy.data(), words.size() * sizeof(words[0]));
  return words;
}

// docs/semantics.md, "Bodies of steps", before the words' number is mixed in.
std::uint64_t PairsOf(const std::vector<std::uint32_t>& words) {
  std::uint64_t sum = 0;
  for (std::uint64_t j = 0; 2 * j < words.size(); ++j) {
    const std::uint64_t high = 2 * j + 1 < words.size() ? words[2 * j + 1] : 0;
    const std::uint64_t pair = (high << 32 | words[2 * j]) + (j + 1) * 0x9E37'79B9'7F4A'7C15;
    sum += (pair & 0xFFFF'FFFF) * (pair >> 32);
  }
  return sum;
}

std::size_t ElementOf(const ArrivingArray& array, bool there) {
  if (array.kind == Kind::kKeys) return 8;
  if (array.kind == Kind::kWideOffsets) return there ? 4 : 8;
  return array.kind == Kind::kNumbers ? BytesOf(array.type) : 4;
}
std::size_t Padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

class ArrivalsTest : public ContractTest {
 protected:
  void SetUp() override {
    ContractTest::SetUp();
    if (!IsSkipped()) arrivals_ = device().MakeIngestCopy();
  }

  // An array in device memory, which may be written.
  struct Given {
    ArrivingArray array;
    Bytes bytes;  // what lies there
    std::shared_ptr<void> from;
    std::shared_ptr<std::byte[]> to;
  };

  Given Give(ArrivingArray array, Bytes bytes) {
    const std::size_t size = std::max<std::size_t>(Padded(bytes.size()), 64);
    Given given{array,
                std::move(bytes),
                {device().Allocate(size), [this](void* p) { device().Free(p); }},
                arrivals_->Take(std::max<std::size_t>(Padded(array.size * ElementOf(array, true)), 64))};
    Bytes junk(size, std::byte{0xAB});  // behind an array lies anything
    std::copy(given.bytes.begin(), given.bytes.end(), junk.begin());
    device().Upload(given.from.get(), junk.data(), junk.size());
    given.array.from = array.kind == Kind::kUnitOffsets ? nullptr : given.from.get();
    given.array.to = given.to.get();
    return given;
  }
  template <class T>
  Given Give(ArrivingArray array, const std::vector<T>& values) {
    Bytes bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    array.size = values.size();
    return Give(array, std::move(bytes));
  }

  Bytes CopyOf(const Given& given) {
    Bytes copy(Padded(given.array.size * ElementOf(given.array, true)));
    if (!copy.empty()) arrivals_->Download(copy.data(), given.array.to, copy.size());
    return copy;
  }

  // Copies all, and checks copies and hashes.
  std::vector<ArrivedArray> Copy(const std::vector<Given>& given) {
    std::vector<ArrivingArray> arrays;
    for (const Given& each : given) arrays.push_back(each.array);
    std::vector<ArrivedArray> found(arrays.size());
    arrivals_->Copy(arrays, found);
    for (std::size_t i = 0; i < given.size(); ++i) {
      SCOPED_TRACE("array " + std::to_string(i) + " of " + std::to_string(given.size()) + ", kind " +
                   std::to_string(static_cast<int>(arrays[i].kind)) + ", size " +
                   std::to_string(arrays[i].size));
      const Bytes copy = CopyOf(given[i]);
      const auto words = WordsOf(arrays[i], copy);
      EXPECT_EQ(found[i].words, words.size());
      EXPECT_EQ(found[i].pairs, PairsOf(words));
      const std::size_t used = arrays[i].size * ElementOf(arrays[i], true);
      EXPECT_TRUE(std::all_of(copy.begin() + static_cast<std::ptrdiff_t>(used), copy.end(), [](std::byte b) {
        return b == std::byte{0};
      })) << "the padding";
      if (arrays[i].kind != Kind::kWideOffsets && arrays[i].kind != Kind::kUnitOffsets) {
        EXPECT_TRUE(std::equal(given[i].bytes.begin(), given[i].bytes.end(), copy.begin()));
      }
    }
    return found;
  }

  Given Keys(Random& random, std::size_t size) {
    std::vector<std::uint64_t> keys(size);
    for (std::uint64_t& key : keys) key = random.Bits();
    return Give({.kind = Kind::kKeys}, keys);
  }
  Given Numbers(Random& random, DataType type, std::size_t size) {
    std::vector<float> wide(size);
    for (float& number : wide) number = static_cast<float>(random.Bits() % 2001) / 8 - 125;
    Bytes bytes(size * BytesOf(type));
    Narrow(wide, type, bytes.data());
    return Give({.kind = Kind::kNumbers, .type = type, .size = size}, std::move(bytes));
  }
  static std::vector<std::uint32_t> Rising(Random& random, std::size_t size) {
    std::vector<std::uint32_t> offsets(size);
    for (std::size_t i = 1; i < size; ++i) {
      offsets[i] = offsets[i - 1] + static_cast<std::uint32_t>(random.Bits() % 4);
    }
    return offsets;
  }

  std::unique_ptr<IngestCopy> arrivals_;
};
SLOTWISE_ON_EVERY_BACKEND(ArrivalsTest);

constexpr std::size_t kSizes[] = {0,  1,  2,  3,   4,   5,   7,    8,    9,    15,   16,    17,
                                  31, 33, 63, 127, 255, 257, 1023, 1024, 1025, 4097, 20'001};
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};

TEST_P(ArrivalsTest, CopiesArraysOfEveryKindAndLengthAndHashesThem) {
  const std::uint64_t seed = Seed(911);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (int turn = 0; turn < 2; ++turn) {  // the second begins where the first one ended
    std::vector<Given> given;             // of more than one launch has room for
    for (const std::size_t size : kSizes) {
      given.push_back(Keys(random, size));
      for (const DataType type : kTypes) given.push_back(Numbers(random, type, size));
      const auto offsets = Rising(random, size + 1);
      given.push_back(Give({.kind = Kind::kOffsets, .last = offsets.back()}, offsets));
      given.push_back(Give({.kind = Kind::kWideOffsets, .last = offsets.back()},
                           std::vector<std::int64_t>(offsets.begin(), offsets.end())));
      EXPECT_EQ(given.back().array.size, size + 1);
      given.push_back(Give({.kind = Kind::kUnitOffsets, .size = size + 1}, Bytes()));
    }
    for (const ArrivedArray& found : Copy(given)) EXPECT_EQ(found.wrong, ArrivedArray::kNone);
    for (const Given& each : given) {
      if (each.array.kind != Kind::kUnitOffsets && each.array.kind != Kind::kWideOffsets) continue;
      std::vector<std::uint32_t> is(each.array.size);
      arrivals_->Download(is.data(), each.array.to, is.size() * sizeof(is[0]));
      std::vector<std::uint64_t> wide(is.begin(), is.end());
      std::vector<std::uint64_t> expected(is.size());
      std::iota(expected.begin(), expected.end(), std::uint64_t{0});
      if (each.array.kind == Kind::kWideOffsets)
        std::memcpy(expected.data(), each.bytes.data(), each.bytes.size());
      EXPECT_EQ(wide, expected);
    }
  }
}

TEST_P(ArrivalsTest, FindsTheFirstNumberThatIsNotFinite) {
  const std::uint64_t seed = Seed(912);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  for (const DataType type : kTypes) {
    for (const float strange :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t size : {1, 7, 8, 300, 10'000}) {
        SCOPED_TRACE(std::string(ToString(type)) + " x " + std::to_string(size));
        const std::size_t first = random.Bits() % size;
        Given numbers = Numbers(random, type, size);
        for (const std::size_t place : {first, first + random.Bits() % (size - first)}) {
          Narrow({&strange, 1}, type, numbers.bytes.data() + place * BytesOf(type));
        }
        device().Upload(numbers.from.get(), numbers.bytes.data(), numbers.bytes.size());
        std::vector<Given> given;
        given.push_back(Numbers(random, type, size));
        given.push_back(std::move(numbers));
        std::vector<ArrivingArray> arrays{given[0].array, given[1].array};
        std::vector<ArrivedArray> found(2);
        arrivals_->Copy(arrays, found);
        EXPECT_EQ(found[0].wrong, ArrivedArray::kNone);
        EXPECT_EQ(found[1].wrong, first);
      }
    }
  }
}

TEST_P(ArrivalsTest, FindsWideOffsetsThatDoNotFit) {
  const std::uint64_t high = std::uint64_t{1} << 32;
  for (const std::size_t size : {1, 2, 3, 700}) {
    for (const std::size_t place : {std::size_t{0}, size / 2, size - 1}) {
      for (const std::uint64_t bits : {high, high << 31, high | 5}) {
        std::vector<std::uint64_t> offsets(size);
        std::iota(offsets.begin(), offsets.end(), std::uint64_t{0});
        offsets[place] = bits;
        std::vector<Given> given;
        // The last offset is right, once it has become the largest number.
        given.push_back(Give({.kind = Kind::kWideOffsets, .last = high - 1}, offsets));
        EXPECT_NE(Copy(given)[0].wrong, ArrivedArray::kNone) << place << " of " << size;
        std::vector<std::uint32_t> there(size);
        arrivals_->Download(there.data(), given[0].array.to, size * sizeof(there[0]));
        EXPECT_EQ(there[place], high - 1);
      }
    }
  }
}

TEST_P(ArrivalsTest, FindsOffsetsThatAreNone) {
  const std::uint64_t seed = Seed(913);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  const auto is_wrong = [&](std::vector<std::int64_t> offsets, std::uint64_t last,
                            bool one_key_a_bag) -> bool {
    std::array<bool, 2> wrong{};
    std::vector<Given> given;
    given.push_back(
        Give({.kind = Kind::kWideOffsets, .one_key_a_bag = one_key_a_bag, .last = last}, offsets));
    const std::vector<std::uint32_t> narrow(offsets.begin(), offsets.end());
    given.push_back(Give({.kind = Kind::kOffsets, .one_key_a_bag = one_key_a_bag, .last = last}, narrow));
    const auto found = Copy(given);
    for (std::size_t i = 0; i < wrong.size(); ++i) wrong[i] = found[i].wrong != ArrivedArray::kNone;
    EXPECT_EQ(wrong[0], wrong[1]);
    return wrong[0];
  };
  for (const std::size_t size : {2, 5, 64, 3000}) {
    const auto rising = Rising(random, size);
    const std::vector<std::int64_t> right(rising.begin(), rising.end());
    const auto last = static_cast<std::uint64_t>(right.back());
    EXPECT_FALSE(is_wrong(right, last, false));
    EXPECT_TRUE(is_wrong(right, last + 1, false)) << "the number of keys";
    auto shifted = right;
    for (std::int64_t& offset : shifted) ++offset;
    EXPECT_TRUE(is_wrong(shifted, last + 1, false)) << "the first";
    auto fall = right;
    fall[random.Bits() % (size - 1)] = static_cast<std::int64_t>(last) + 1;
    EXPECT_TRUE(is_wrong(fall, last, false));
    std::vector<std::int64_t> unit(size);
    std::iota(unit.begin(), unit.end(), std::int64_t{0});
    EXPECT_FALSE(is_wrong(unit, size - 1, true));
    if (size > 2) {
      unit[1] = 2;
      EXPECT_FALSE(is_wrong(unit, size - 1, false));
      EXPECT_TRUE(is_wrong(unit, size - 1, true));
    }
  }
  // What has no 32 bits must not look like what has.
  std::vector<Given> given;
  given.push_back(
      Give({.kind = Kind::kWideOffsets, .last = 5}, std::vector<std::int64_t>{0, 3, (1LL << 32) + 5}));
  given.push_back(
      Give({.kind = Kind::kWideOffsets, .last = 5}, std::vector<std::int64_t>{0, -(1LL << 32) + 3, 5}));
  for (const ArrivedArray& found : Copy(given)) EXPECT_NE(found.wrong, ArrivedArray::kNone);
}

// The owner of an array writes it all the time: whatever was copied, the hash is of that, and it is finite if
// nothing else was found.
TEST_P(ArrivalsTest, SaysOfTheCopyWhatItSays) {
  if (!device().SharesHostMemory()) GTEST_SKIP() << "the host cannot write there at every moment";
  const std::uint64_t seed = Seed(914);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  const Given numbers = Numbers(random, DataType::kFloat32, 100'000);
  auto* const words = static_cast<std::uint32_t*>(numbers.from.get());
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> written = 0;
  std::jthread racing([&] {
    for (std::uint32_t turn = 0; !stop; ++turn) {
      const std::uint32_t bits = turn % 3 == 0 ? 0x7F80'0000U : turn % 3 == 1 ? 0x3F80'0000U : 0x4000'0000U;
      for (std::size_t i = 0; i < numbers.array.size; i += 7) {
        std::atomic_ref(words[i]).store(bits, std::memory_order_relaxed);
      }
      ++written;
    }
  });
  std::vector<ArrivedArray> found(1);
  std::uint64_t copies = 0;
  while (copies < 300 || written < 300) {
    arrivals_->Copy({&numbers.array, 1}, found);
    const Bytes copy = CopyOf(numbers);
    const auto is = WordsOf(numbers.array, copy);
    ASSERT_EQ(found[0].pairs, PairsOf(is)) << "copy " << copies;
    const auto strange =
        std::ranges::find_if(is, [](std::uint32_t w) { return (w & 0x7F80'0000U) == 0x7F80'0000U; });
    const std::uint64_t first =
        strange == is.end() ? ArrivedArray::kNone : static_cast<std::uint64_t>(strange - is.begin());
    ASSERT_EQ(found[0].wrong, first) << "copy " << copies;
    ++copies;
  }
  stop = true;
}

TEST_P(ArrivalsTest, MemoryOutlivesWhatHasGivenIt) {
  auto another = device().MakeIngestCopy();
  const auto memory = another->Take(1 << 20);
  another.reset();
  const std::vector<std::byte> ones(1 << 20, std::byte{1});
  device().Upload(memory.get(), ones.data(), ones.size());
  Bytes back(ones.size());
  device().Download(back.data(), memory.get(), back.size());
  EXPECT_EQ(back, ones);
}

}  // namespace
}  // namespace slotwise::test
