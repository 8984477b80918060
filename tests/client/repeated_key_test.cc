// A key that a file has twice is found, in however many parts the file is read.
#include "client/ctl/repeated_key.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <vector>

#include "client/ctl/npy.h"

namespace slotwise::ctl {
namespace {

constexpr std::uint64_t kKeys = 300'000;  // more than are read at once

std::optional<Key> Repeated(const std::vector<std::uint64_t>& keys, std::size_t at_once) {
  const std::string path = testing::TempDir() + "slotwise_repeated_" + std::to_string(getpid()) + ".npy";
  NpyWriter writer(path, "<u8", std::nullopt);
  writer.Append(keys.size(), std::as_bytes(std::span(keys)));
  EXPECT_TRUE(writer.Close().ok());
  const auto repeated = FindRepeatedKey(path, at_once);
  std::filesystem::remove(path);
  EXPECT_TRUE(repeated.ok()) << repeated.status().message();
  return repeated.ok() ? *repeated : std::nullopt;
}

TEST(FindRepeatedKey, FindsOneWhereverItLies) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < kKeys; ++i) keys.push_back(i * i);
  for (const std::size_t at_once : {std::size_t{1} << 25, std::size_t{50'000}}) {
    EXPECT_EQ(Repeated(keys, at_once), std::nullopt);
    for (const std::size_t place : {std::size_t{1}, keys.size() / 2, keys.size() - 1}) {
      auto twice = keys;
      twice[place] = keys[place - 1];
      EXPECT_EQ(Repeated(twice, at_once), Key{keys[place - 1]});
      twice = keys;
      twice[place] = 0;  // far from its twin
      EXPECT_EQ(Repeated(twice, at_once), Key{0});
    }
  }
}

TEST(FindRepeatedKey, IsOfFewKeysToo) {
  EXPECT_EQ(Repeated({}, 2), std::nullopt);
  EXPECT_EQ(Repeated({7}, 2), std::nullopt);
  EXPECT_EQ(Repeated({7, 8, 9, 7}, 2), Key{7});
  EXPECT_EQ(Repeated(std::vector<std::uint64_t>(kKeys, 5), 100'000), Key{5});
}

}  // namespace
}  // namespace slotwise::ctl
