// Compares the data path's reader with protobuf's own on randomly damaged messages. Both or neither accept a
// message, and both read the same.
#include <gtest/gtest.h>

#include <string>

#include "server/rpc/library_logs.h"
#include "tests/rpc/compare_readers.h"
#include "tests/rpc/messages.h"
#include "tests/support/batches.h"

namespace slotwise {
namespace {

constexpr int kRounds = 20'000;

class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed) {}

  std::size_t Below(std::size_t limit) { return random_.Below(limit); }

  // Flips, inserts, erases, repeats or cuts a few bytes.
  std::string Apply(std::string bytes) {
    for (std::size_t times = 1 + Below(3); times > 0 && !bytes.empty(); --times) {
      const std::size_t place = Below(bytes.size());
      switch (Below(5)) {
        case 0:
          bytes[place] = static_cast<char>(Below(256));
          break;
        case 1:
          bytes.insert(place, 1, static_cast<char>(Below(256)));
          break;
        case 2:
          bytes.erase(place, 1 + Below(4));
          break;
        case 3:
          bytes += bytes.substr(place);
          break;
        default:
          bytes.resize(place);
          break;
      }
    }
    return bytes;
  }

 private:
  test::Random random_;
};

TEST(WireReader, AgreesWithProtobufOnDamagedMessages) {
  SendLibraryLogsToOurs();  // without the call, protobuf would write a line for each name that is not UTF-8
  const std::uint64_t seed = test::Seed(20261121);
  SCOPED_TRACE(test::SeedNote(seed));
  Damage damage(seed);
  const std::string sound = SmallPush().SerializeAsString();
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string bytes = damage.Apply(sound);
    const Comparison compared = CompareWithProtobuf(bytes, 1 + damage.Below(40));
    ASSERT_EQ(compared.difference, "") << "round " << round;
    if (compared.taken) ++taken;
  }
  EXPECT_GT(taken, kRounds / 50);
}

}  // namespace
}  // namespace slotwise
