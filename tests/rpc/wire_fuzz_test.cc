// Compares the data path's reader with protobuf's own, on messages damaged at random: both or neither take a
// message, and both read the same from it.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "server/rpc/library_logs.h"
#include "server/rpc/wire_array.h"
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
        case 4:
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
    v1::PushRequest expected;
    const bool ok = expected.ParseFromString(bytes);

    v1::PushRequest fields;
    WireArray<Key> keys;
    WireArray<std::uint32_t> offsets;
    WireArray<float> gradients;
    std::string in_pieces;
    const std::array arrays{ReadInto(14, keys), ReadInto(15, offsets),
                            ArrayField{16,
                                       [&](std::size_t size) {
                                         in_pieces.clear();
                                         return gradients.MakeRoom(size);
                                       },
                                       [&](std::span<const std::byte> piece) {
                                         in_pieces.append(reinterpret_cast<const char*>(piece.data()),
                                                          piece.size());
                                       }}};
    const Status status = ReadMessage(BufferOf(bytes, 1 + damage.Below(40)), arrays, fields);
    ASSERT_EQ(status.ok(), ok) << "round " << round << ": " << status.message();
    if (!ok) continue;

    ++taken;
    ASSERT_EQ(keys.bytes, expected.keys().size()) << "round " << round;
    ASSERT_EQ(offsets.bytes, expected.offsets().size());
    ASSERT_EQ(gradients.bytes, expected.gradients().size());
    if (keys.whole()) {
      ASSERT_EQ(BytesOf<Key>(keys.values.span()), expected.keys());
    }
    if (offsets.whole()) {
      ASSERT_EQ(BytesOf<std::uint32_t>(offsets.values.span()), expected.offsets());
    }
    if (gradients.whole()) {
      ASSERT_EQ(in_pieces, expected.gradients());
    }
    expected.clear_keys();
    expected.clear_offsets();
    expected.clear_gradients();
    ASSERT_EQ(fields.SerializeAsString(), expected.SerializeAsString());
  }
  EXPECT_GT(taken, kRounds / 50);
}

}  // namespace
}  // namespace slotwise
