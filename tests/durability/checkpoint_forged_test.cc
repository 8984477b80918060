// A forged file of a checkpoint is refused even with right checksums, and the message names file and place.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "server/durability/checksum.h"
#include "server/durability/compaction.h"
#include "server/durability/hex.h"
#include "tests/durability/checkpoint_rig.h"

namespace slotwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Where TableArrays::All() has a file.
constexpr std::size_t kKeys = 0;
constexpr std::size_t kRows = 2;
constexpr std::size_t kFirstState = 3;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A delta "b" of a base "a", of two ranks, with a table of one optimizer.
class ForgedTest : public CheckpointTest {
 protected:
  void Write(OptimizerKind kind, DataType type = DataType::kFloat32, std::uint32_t dim = 3) {
    TableOfTest table{.options = OptionsOf(kind, dim), .type = type};
    const std::uint32_t width = WidthOf(table.options);
    table.rows = RowsOf(0, 300, 1, width);
    const Manifest base = MustSave(files_, {.id = "a", .tables = {table}, .ranks = 2});
    table.rows = RowsOf(100, 250, 2, width);
    for (std::uint64_t i = 300; i < 500; ++i) table.erased.insert(KeyAt(i));
    MustSave(files_, {.id = "b", .parent = base.name(), .tables = {table}, .ranks = 2, .round = 11});
  }

  void Rewrite(OptimizerKind kind, DataType type = DataType::kFloat32) {
    for (const char* const id : {"/a", "/b"}) ASSERT_TRUE(files_.RemoveFolder(kCheckpoints + id).ok());
    Write(kind, type);
  }

  Manifest ManifestOf(const std::string& id) { return Checkpoints(files_, kCheckpoints).ChainOf(id)->back(); }
  static std::string PathOf(const std::string& id, const std::string& name) {
    return kCheckpoints + "/" + id + "/table-1/" + name;
  }

  // Returns what a reader of the table says once `bytes` of an array's rows, from `offset` behind the header
  // on, are others. The file is whole again then.
  template <class T>
  std::string Refusal(const std::string& id, std::size_t file, std::size_t place, const T& value) {
    return RefusalOf(id, file, kNpyHeaderBytes + place * sizeof(value), std::as_bytes(std::span(&value, 1)));
  }
  std::string RefusalOf(const std::string& id, std::size_t file, std::size_t offset,
                        std::span<const std::byte> bytes) {
    // A delta names its parent's manifest, so it is read alone.
    return WhileForged(id, file, offset, bytes,
                       [this](const Manifest& forged) { return ReadAll(files_, {forged}, 1).status(); });
  }

  // Returns what `read` says while `bytes` of an array, from `offset` on, are others.
  std::string WhileForged(const std::string& id, std::size_t file, std::size_t offset,
                          std::span<const std::byte> bytes,
                          const std::function<Status(const Manifest&)>& read) {
    Manifest manifest = ManifestOf(id);
    FileEntry& entry = manifest.tables[0].ranks[0].files[file];
    const std::string path = PathOf(id, entry.name);
    const Bytes whole = files_.Contents(path);
    const Bytes text = files_.Contents(kCheckpoints + "/" + id + "/manifest.json");
    Bytes other = whole;
    std::ranges::copy(bytes, other.begin() + static_cast<std::ptrdiff_t>(offset));
    Forge(files_, manifest, entry, path, other);
    const Status status = read(manifest);
    if (!status.ok()) {
      test::ExpectStatus(status, StatusCode::kFailedPrecondition, path);
      EXPECT_THAT(status.message(), Not(HasSubstr("is damaged")));
    }
    files_.SetContents(path, whole);
    files_.SetContents(kCheckpoints + "/" + id + "/manifest.json", text);
    return status.message();
  }

  std::vector<Key> KeysOf(const std::string& id, const std::string& name) {
    const Bytes bytes = files_.Contents(PathOf(id, name));
    std::vector<Key> keys((bytes.size() - kNpyHeaderBytes) / sizeof(Key));
    std::memcpy(keys.data(), &bytes[kNpyHeaderBytes], keys.size() * sizeof(Key));
    return keys;
  }
};

TEST_F(ForgedTest, HeadersAreThoseOfTheArrays) {
  Write(OptimizerKind::kAdam);
  for (const std::string id : {"a", "b"}) {
    const std::size_t files = ManifestOf(id).tables[0].ranks[0].files.size();
    for (std::size_t file = 0; file < files; ++file) {
      const std::string name = ManifestOf(id).tables[0].ranks[0].files[file].name;
      const std::string header = TextOf(files_.Contents(PathOf(id, name))).substr(0, kNpyHeaderBytes);
      const auto refusal = [&](const std::string& from, const std::string& to) {
        std::string other = header;
        EXPECT_NE(other.find(from), std::string::npos) << header;
        other.replace(other.find(from), from.size(), to);
        if (to.size() > from.size()) other.erase(other.size() - 2, to.size() - from.size());  // of spaces
        EXPECT_EQ(other.size(), kNpyHeaderBytes);
        return RefusalOf(id, file, 0, std::as_bytes(std::span<const char>(other)));
      };
      EXPECT_EQ(refusal("False", "False"), "");
      EXPECT_THAT(refusal("False", "True "), HasSubstr("does not begin with {'descr': '<")) << name;
      EXPECT_THAT(refusal("'descr': '<", "'descr': '>"), HasSubstr("'fortran_order': False")) << name;
      EXPECT_THAT(refusal(header.substr(11, 14), "'descr': '|O',"), HasSubstr("does not begin")) << name;
      EXPECT_THAT(refusal("'shape': (", "'shape': (9"), HasSubstr("does not begin")) << name;
      EXPECT_THAT(refusal("\x93NUMPY\x01", "\x93NUMPY\x02"), HasSubstr("does not begin")) << name;
    }
  }
}

TEST_F(ForgedTest, AVerificationReadsHeadersToo) {
  Write(OptimizerKind::kSgd);
  Manifest manifest = ManifestOf("a");
  FileEntry& entry = manifest.tables[0].ranks[1].files[kRows];
  const std::string path = PathOf("a", entry.name);
  Bytes bytes = files_.Contents(path);
  bytes[20] ^= std::byte{1};
  Forge(files_, manifest, entry, path, bytes);
  EXPECT_THAT(Checkpoints(files_, kCheckpoints).Verify("a").message(), HasSubstr(path));
}

TEST_F(ForgedTest, KeysAscendInTheirBuckets) {
  Write(OptimizerKind::kSgd);
  for (const std::string name : {"rank-0.keys.npy", "rank-0.erased.npy"}) {
    const std::size_t file = name == "rank-0.keys.npy" ? kKeys : kRows + 1;
    const std::vector<Key> keys = KeysOf("b", name);
    ASSERT_GT(keys.size(), 50U);
    EXPECT_EQ(Refusal("b", file, 7, keys[7]), "");
    // Two keys of a bucket are rare: any other key is of another bucket.
    for (const std::size_t place : {std::size_t{0}, std::size_t{7}, keys.size() - 1}) {
      const std::string where = "key " + std::to_string(place) + " is ";
      EXPECT_THAT(Refusal("b", file, place, Key{Value(keys[place]) + 1}), HasSubstr(where));
      EXPECT_THAT(Refusal("b", file, place, Key{1}), HasSubstr(where));
      EXPECT_THAT(Refusal("b", file, place, keys[place == 0 ? 1 : place - 1]), HasSubstr(where));
    }
    const std::array swapped{keys[8], keys[7]};
    EXPECT_THAT(Refusal("b", file, 0, swapped), HasSubstr("is not in bucket order: key 0 is "));
  }
}

TEST_F(ForgedTest, KeysOfOneBucketAreNotRepeatedAndNotSwapped) {
  // As many keys of one bucket as there are.
  TableOfTest table{.options = OptionsOf(OptimizerKind::kSgd, 1)};
  for (std::uint64_t key = 0; table.rows.size() < 10; ++key) {
    if (BucketOfKey(Key{key}) == 1000) table.rows[Key{key}] = {1.0F};
  }
  MustSave(files_, {.id = "a", .tables = {table}, .ranks = 2});
  const std::vector<Key> keys = KeysOf("a", "rank-0.keys.npy");
  ASSERT_EQ(keys.size(), 10U);
  for (std::size_t place = 1; place < keys.size(); ++place) {
    const std::string where = "is not in bucket order: key " + std::to_string(place) + " is ";
    EXPECT_THAT(Refusal("a", kKeys, place, keys[place - 1]), HasSubstr(where));
  }
  const std::array swapped{keys[5], keys[4]};
  EXPECT_THAT(RefusalOf("a", kKeys, kNpyHeaderBytes + 4 * sizeof(Key), std::as_bytes(std::span(swapped))),
              HasSubstr("is not in bucket order: key 5 is "));
}

TEST_F(ForgedTest, RowsAreFiniteInEveryType) {
  Write(OptimizerKind::kSgd);
  for (const float number : {kNan, -kNan, kInfinity, -kInfinity})
    EXPECT_THAT(Refusal("a", kRows, 10, number),
                HasSubstr("rank-0.rows.npy has what no row can have: number 1 of row 3 is "));
  for (const float number : {0.0F, -0.0F, -1.0F, std::numeric_limits<float>::max(), 1e-40F})
    EXPECT_EQ(Refusal("a", kRows, 10, number), "");
}

TEST_F(ForgedTest, RowsOf16BitsAreFinite) {
  struct Case {
    DataType type;
    std::vector<std::uint16_t> not_finite;
    std::vector<std::uint16_t> finite;
  };
  for (const Case& each :
       {Case{DataType::kFloat16, {0x7C00, 0xFC00, 0x7E00, 0x7C01}, {0x7BFF, 0xFBFF, 0x8000, 0x0001}},
        Case{DataType::kBFloat16, {0x7F80, 0xFF80, 0x7FC0, 0x7F81}, {0x7F7F, 0xFF7F, 0x8000, 0x7C00}}}) {
    SCOPED_TRACE(ToString(each.type));
    Rewrite(OptimizerKind::kAdaGrad, each.type);
    for (const std::uint16_t bits : each.not_finite)
      EXPECT_THAT(Refusal("a", kRows, 10, bits), HasSubstr("number 1 of row 3 is "));
    for (const std::uint16_t bits : each.finite) EXPECT_EQ(Refusal("a", kRows, 10, bits), "");
  }
}

TEST_F(ForgedTest, SquaresAreNotBelowZero) {
  struct Case {
    OptimizerKind kind;
    std::vector<bool> squares;  // by array of state
  };
  std::size_t at = 0;
  for (const Case& each :
       {Case{OptimizerKind::kAdaGrad, {true}}, Case{OptimizerKind::kRowWiseAdaGrad, {true}},
        Case{OptimizerKind::kRmsProp, {true}}, Case{OptimizerKind::kMomentum, {false}},
        Case{OptimizerKind::kNesterov, {false}}, Case{OptimizerKind::kAdam, {false, true}},
        Case{OptimizerKind::kFtrl, {false, true}}}) {
    SCOPED_TRACE(std::string(ToString(each.kind)));
    Rewrite(each.kind);
    for (std::size_t array = 0; array < each.squares.size(); ++array) {
      const std::size_t file = kFirstState + array;
      const std::size_t place = ++at % 40;
      EXPECT_THAT(Refusal("a", file, place, kNan), HasSubstr("has what no row can have"));
      EXPECT_THAT(Refusal("a", file, place, kInfinity), HasSubstr("has what no row can have"));
      EXPECT_EQ(Refusal("a", file, place, -0.0F), "");
      for (const float number : {-1.0F, -1e-40F, -std::numeric_limits<float>::max()}) {
        const std::string why = Refusal("a", file, place, number);
        if (!each.squares[array]) {
          EXPECT_EQ(why, "");
        } else {
          EXPECT_THAT(why, HasSubstr("and is a sum or mean of squares"));
        }
      }
    }
  }
}

// The place of each number in a file of more than a piece.
TEST_F(ForgedTest, EveryNumberOfALargeFileIsLookedAt) {
  TableOfTest table{.options = OptionsOf(OptimizerKind::kSgd, 64), .rows = RowsOf(0, 5000, 1, 64)};
  MustSave(files_, {.id = "a", .tables = {table}, .block_bytes = 1 << 20});
  for (const std::size_t place : {0U, 1U, 4095U, 4096U, 131'071U, 131'072U, 200'000U, 319'999U}) {
    EXPECT_THAT(Refusal("a", kRows, place, kNan), HasSubstr("number " + std::to_string(place % 64) +
                                                            " of row " + std::to_string(place / 64) + " is"));
  }
}

// Recovery would take it for the newest, and skip the journal's rounds up to there.
TEST_F(ForgedTest, ACheckpointOfAnotherRoundThanItsIdSaysIsPassedOver) {
  const std::string older = CheckpointId({.round = 10, .instance = 0xabc});
  const std::string newer = CheckpointId({.round = 11, .instance = 0xabc});
  MustSave(files_, {.id = older, .round = 10});
  MustSave(files_, {.id = newer, .round = 11});
  const Checkpoints checkpoints(files_, kCheckpoints);
  EXPECT_EQ(checkpoints.Newest()->chain.back().id, newer);
  const std::string path = kCheckpoints + "/" + newer + "/manifest.json";
  std::string text = TextOf(files_.Contents(path));
  text.erase(0, text.find('\n') + 1);
  const std::string said = "\"round\": \"11\",";
  ASSERT_NE(text.find(said), std::string::npos);
  for (const std::string round :
       {"12", "4611686018427387904", "9223372036854775808", "18446744073709551615"}) {
    std::string forged = text;
    forged.replace(forged.find(said), said.size(), "\"round\": \"" + round + "\",");
    forged = "{\"checksum\": \"" + Hex(ChecksumOf(forged)) + "\",\n" + forged;
    files_.SetContents(path, BytesOf(forged));
    const auto newest = test::Must(checkpoints.Newest());
    EXPECT_EQ(newest.chain.back().id, older);
    EXPECT_THAT(newest.passed_over, ::testing::ElementsAre(AllOf(HasSubstr(path), HasSubstr("round is "))));
  }
}

TEST_F(ForgedTest, NothingOfItIsFolded) {
  Write(OptimizerKind::kAdaGrad);
  const auto fold = [&](std::size_t file, std::size_t place, const auto& value) {
    const std::string why = WhileForged("b", file, kNpyHeaderBytes + place * sizeof(value),
                                        std::as_bytes(std::span(&value, 1)), [this](const Manifest& forged) {
                                          return Compact(files_, kCheckpoints, {ManifestOf("a"), forged},
                                                         {.id = "f", .server_version = "1"})
                                              .status();
                                        });
    EXPECT_NE(why, "");
  };
  fold(kRows, 10, kNan);
  fold(kFirstState, 10, -1.0F);
}

}  // namespace
}  // namespace slotwise
