// All code that needs a key's owner calls one function, with the key's own bag.
#include "kernels/body/owner.h"

#include <numeric>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/body/all_to_all.h"
#include "kernels/body/keep_mine.h"
#include "kernels/shard.h"
#include "tests/support/batches.h"
#include "tests/support/oracle.h"

namespace slotwise::body {
namespace {

// A placement by bag, of which no table is yet: bag b's keys belong to rank b mod 3, whatever they are.
struct OwnerByBag {
  static constexpr bool kNeedsBag = true;
  std::uint16_t operator()(std::uint32_t bag, Key /*key*/) const { return bag % 3; }
};

test::Batch SomeBatch() {
  test::Random random(140);
  return RandomBatch(random, {.bags = 50, .max_bag = 6});
}

// What CountBagsToReceive says of the bags from `first` on, as counts[rank][bag].
template <class Owner>
std::vector<std::uint32_t> ReceivedFrom(const test::Batch& batch, Owner owner, std::uint32_t first) {
  constexpr std::uint32_t kRanks = 3;
  const std::uint32_t bags = batch.bags() - first;
  std::vector<std::uint32_t> counts(std::size_t{kRanks} * bags, 7);
  const CountBagsToReceive<Owner> count{owner,  batch.keys.data(), batch.offsets.data() + first, first, bags,
                                        kRanks, counts.data()};
  for (std::uint32_t bag = 0; bag < bags; ++bag) count(bag);
  return counts;
}

TEST(TheOwner, IsWhoTheMapSays) {
  BucketMap map{};
  std::iota(map.begin(), map.end(), std::uint16_t{0});
  const Owner owner{map.data()};
  test::Random random(141);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t key = random.Bits();
    EXPECT_EQ(owner(kNoBag, Key{key}), test::OracleBucket(key));
    EXPECT_EQ(owner(17, Key{key}), test::OracleBucket(key));
  }
}

TEST(TheOwner, IsAskedByTheSharderWithTheKeysBag) {
  const test::Batch batch = SomeBatch();
  for (const std::uint16_t rank : {0, 1, 2}) {
    std::vector<std::uint32_t> counts(batch.bags());
    const CountMine<OwnerByBag> count{{{}, rank}, batch.keys.data(), batch.offsets.data(), counts.data()};
    for (std::uint32_t bag = 0; bag < batch.bags(); ++bag) {
      count(bag);
      EXPECT_EQ(counts[bag], bag % 3 == rank ? batch.size(bag) : 0) << "bag " << bag;
    }
  }
}

// A selection that has only the key cannot be asked of such a placement.
static_assert(!std::is_invocable_v<IsMine<OwnerByBag>, Key>);
static_assert(std::is_invocable_v<IsMine<Owner>, Key>);

TEST(TheOwner, IsAskedByTheTrafficWithTheBagsNumberAmongAll) {
  const test::Batch batch = SomeBatch();
  for (const std::uint32_t first : {0, 10, 20}) {
    const std::uint32_t bags = batch.bags() - first;
    const std::vector<std::uint32_t> counts = ReceivedFrom(batch, OwnerByBag{}, first);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      for (std::uint32_t bag = 0; bag < bags; ++bag) {
        const bool owns = (first + bag) % 3 == rank && batch.size(first + bag) > 0;
        EXPECT_EQ(counts[std::size_t{rank} * bags + bag], owns ? 1U : 0U)
            << "rank " << rank << ", bag " << bag;
      }
    }
  }
}

// Selecting keys, counting them, selecting what lies beside them and planning their traffic agree on any map.
TEST(TheOwner, IsTheSameForAllWhoAsk) {
  test::Random random(142);
  BucketMap map{};
  for (auto& rank : map) rank = static_cast<std::uint16_t>(random.Below(3));
  const Owner owner{map.data()};
  const test::Batch batch = SomeBatch();
  const std::vector<std::uint32_t> received = ReceivedFrom(batch, owner, 0);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    const IsMine<Owner> is_mine{owner, rank};
    const KeyIsMine<Owner> key_is_mine{is_mine, batch.keys.data()};
    std::vector<std::uint32_t> counts(batch.bags());
    const CountMine<Owner> count{is_mine, batch.keys.data(), batch.offsets.data(), counts.data()};
    for (std::uint32_t bag = 0; bag < batch.bags(); ++bag) {
      count(bag);
      std::uint32_t selected = 0;
      for (std::uint32_t i = batch.offsets[bag]; i < batch.offsets[bag + 1]; ++i) {
        selected += is_mine(batch.keys[i]) ? 1 : 0;
        EXPECT_EQ(is_mine(batch.keys[i]), map[test::OracleBucket(Value(batch.keys[i]))] == rank);
        EXPECT_EQ(key_is_mine(i), is_mine(batch.keys[i]));
      }
      EXPECT_EQ(counts[bag], selected) << "bag " << bag;
      EXPECT_EQ(received[std::size_t{rank} * batch.bags() + bag], selected > 0 ? 1U : 0U) << "bag " << bag;
    }
  }
}

}  // namespace
}  // namespace slotwise::body
