// A shard places keys in its hash table by the secret of its place. No answer shows the keys' cells, so the
// test counts the cells that an insert visits.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/backend/cpu.h"
#include "kernels/shard.inl"
#include "tests/support/batches.h"
#include "tests/support/checked_table.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

// The CPU backend on one thread, which counts what searches load while they may add keys.
struct CountingBackend : CpuBackend {
  static inline std::uint64_t loads = 0;
  struct Atomics : CpuBackend::Atomics {
    using CpuBackend::Atomics::Load;
    static std::uint64_t Load(const std::uint64_t* word) {
      ++loads;
      return CpuBackend::Atomics::Load(word);
    }
  };
};

std::uint64_t LoadsToInsert(const std::vector<std::uint64_t>& keys, const HashSecret& secret) {
  CpuQueue queue(1);
  auto shard = MakeShardOn<CountingBackend>(queue, MakeOptions(1), ShardPlace{.secret = secret});
  EXPECT_TRUE(shard.ok());
  const Batch batch = OneKeyABag(keys);
  auto prepared = (*shard)->PrepareInsert(batch.View()).Finish();
  EXPECT_TRUE(prepared.ok());
  CountingBackend::loads = 0;
  std::move(*prepared).Insert();
  EXPECT_EQ((*shard)->Usage().rows, keys.size());
  return CountingBackend::loads;
}

TEST(AShard, PutsKeysWhereTheSecretOfItsPlaceSays) {
  // Under the test's secret, the searches for these keys begin in one place and go the same way.
  const auto keys = KeysOfPlace(kTestSecret, 0x1FE'0000'07FE, 0x0A4'0000'0356, 120);
  const std::uint64_t together = LoadsToInsert(keys, kTestSecret);
  EXPECT_GT(together, keys.size() * keys.size() / 4) << "each search passes the keys before";
  for (const HashSecret& other : {HashSecret(0, 0), HashSecret(kTestSecret.low() + 1, kTestSecret.high()),
                                  HashSecret(kTestSecret.low(), kTestSecret.high() + 1)}) {
    EXPECT_LT(LoadsToInsert(keys, other), keys.size() * 4) << "the keys lie apart";
  }
}

}  // namespace
}  // namespace slotwise::test
