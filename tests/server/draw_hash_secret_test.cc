// A server's secret consists of all the kernel's random bytes, or there is no secret.
#include "server/draw_hash_secret.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>

namespace slotwise {
namespace {

TEST(TheSecretOfHashTables, IsAnotherEachTimeItIsDrawn) {
  std::set<std::uint64_t> words;
  for (int i = 0; i < 100; ++i) {
    const Result<HashSecret> secret = DrawHashSecret();
    ASSERT_TRUE(secret.ok()) << secret.status().message();
    words.insert({secret->low(), secret->high()});
  }
  EXPECT_EQ(words.size(), 200u);
}

TEST(TheSecretOfHashTables, IsMadeOfEveryByteHoweverFewComeAtOnce) {
  static std::uint8_t next;
  next = 1;
  const Result<HashSecret> secret = DrawHashSecret([](void* bytes, std::size_t size, unsigned) -> ssize_t {
    if (next % 4 == 0) {  // a signal came
      ++next;
      errno = EINTR;
      return -1;
    }
    const std::size_t few = std::min<std::size_t>(size, 3);
    std::fill_n(static_cast<std::uint8_t*>(bytes), few, next++);
    return static_cast<ssize_t>(few);
  });
  ASSERT_TRUE(secret.ok()) << secret.status().message();
  EXPECT_EQ(secret->low(), 0x0303'0202'0201'0101u);
  EXPECT_EQ(secret->high(), 0x0706'0606'0505'0503u);
}

TEST(TheSecretOfHashTables, IsMissedInASentence) {
  const auto refused = DrawHashSecret([](void*, std::size_t, unsigned) -> ssize_t {
    errno = ENOSYS;
    return -1;
  });
  EXPECT_EQ(refused.status(),
            FailedPrecondition(
                "cannot draw the secret of the hash tables by getrandom(2): Function not implemented"));
  const auto ended = DrawHashSecret([](void*, std::size_t, unsigned) -> ssize_t { return 0; });
  EXPECT_EQ(
      ended.status(),
      FailedPrecondition("cannot draw the secret of the hash tables by getrandom(2): it gave no bytes"));
}

}  // namespace
}  // namespace slotwise
