// What a journal has of a round comes back as it was, and bytes that are no record are refused.
#include "server/engine/round_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace slotwise {
namespace {

// The bytes of pieces, aligned as a recovery reads them.
struct Bytes {
  explicit Bytes(const std::vector<JournalPiece>& pieces) {
    std::vector<std::byte> all;
    for (const JournalPiece& piece : pieces) all.insert(all.end(), piece.bytes.begin(), piece.bytes.end());
    size = all.size();
    memory.resize((size + 7) / 8);
    std::memcpy(memory.data(), all.data(), size);
  }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(memory)).first(size); }

  std::vector<std::uint64_t> memory;
  std::size_t size = 0;
};

template <class T>
BatchArray<T> ArrayOf(const std::vector<T>& values) {
  BatchArray<T> array(values.size());
  std::ranges::copy(values, array.data());
  return array;
}

std::shared_ptr<const BatchPart> PartOf(std::uint32_t samples, std::uint64_t first_key, bool weighted,
                                        DataType type = DataType::kFloat32) {
  auto part = std::make_shared<BatchPart>();
  part->samples = samples;
  std::vector<Key> keys;
  std::vector<std::uint32_t> offsets{0};
  for (std::uint32_t s = 0; s < samples; ++s) {
    for (std::uint32_t k = 0; k <= s % 3; ++k) keys.push_back(Key{first_key + keys.size()});
    offsets.push_back(static_cast<std::uint32_t>(keys.size()));
  }
  part->keys = ArrayOf(keys);
  part->offsets = ArrayOf(offsets);
  if (weighted) part->weights = ArrayOf(std::vector<float>(keys.size(), 0.5F));
  part->values = ArrayOf(std::vector<float>(samples, -1.25F));
  part->value_type = type;
  return part;
}

RoundPart Of(Rank rank, TicketNumber ticket, std::uint32_t number, const BatchPart& part) {
  return {.ticket = {rank, ticket},
          .samples = part.samples,
          .keys = static_cast<std::uint32_t>(part.keys.size()),
          .part = number,
          .weighted = part.weights.size() > 0,
          .body = 77 + number};
}

template <class T>
void ExpectEqual(std::span<const T> read, std::span<const T> written) {
  EXPECT_TRUE(std::ranges::equal(read, written));
}

Round RoundOf(Operation operation, TableId table) {
  Round round;
  round.operation = operation;
  round.table = table;
  return round;
}

TEST(RoundRecord, HasAStepOfSeveralTablesWithThePartsThatCameToTheRank) {
  const Rank me{1};
  const std::vector<std::shared_ptr<const BatchPart>> parts{
      PartOf(3, 10, false), PartOf(5, 100, true, DataType::kBFloat16), PartOf(1, 7, false)};
  Round round = RoundOf(Operation::kPush, TableId{4});
  round.step = {.session = 9, .number = 12, .parts = 2, .epoch = 3, .tables = 2};
  round.parts = {Of(Rank{0}, 1, 1, *parts[0]), Of(me, 1, 0, *parts[1])};
  Round other = RoundOf(Operation::kPush, TableId{2});
  other.parts = {Of(me, 2, 0, *parts[2])};
  round.others = {other};
  const std::vector<std::uint64_t> steps{41, 7};
  const auto arrays_of = [&](const Ticket& ticket) { return parts[ticket.number]; };
  const Bytes bytes(RecordBatches(round, me, steps, arrays_of));
  EXPECT_LE(bytes.size, RecordBytes(round, me, [&](const Ticket& t) { return parts[t.number]->bytes(); }));

  const auto read = ReadRecord(RecordKind::kPush, me, bytes.span());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->step, round.step);
  ASSERT_EQ(read->shares.size(), 2U);
  EXPECT_EQ(read->shares[0].table, TableId{4});
  EXPECT_EQ(read->shares[0].steps, 41U);
  EXPECT_EQ(read->shares[1].steps, 7U);
  ASSERT_EQ(read->shares[0].parts.size(), 2U);
  EXPECT_EQ(read->shares[0].parts[0].rank, 0U);
  EXPECT_EQ(read->shares[0].parts[0].part, 1U);
  EXPECT_EQ(read->shares[0].parts[1].weighted, 1U);
  EXPECT_EQ(read->shares[0].parts[1].body, 77U);
  ASSERT_EQ(read->arrays.size(), 2U) << "those of rank 0 are in its record";
  for (std::size_t i = 0; i < 2; ++i) {
    const BatchPart& written = *parts[i + 1];
    const RecordedArrays& arrays = read->arrays[i];
    ExpectEqual(arrays.keys, written.keys.span());
    ExpectEqual(arrays.offsets, written.offsets.span());
    ExpectEqual(arrays.weights, written.weights.span());
    ExpectEqual(arrays.values, std::as_bytes(written.values.span()));
    EXPECT_EQ(arrays.value_type, written.value_type);
  }
  for (std::size_t size = 0; size < bytes.size; ++size) {
    EXPECT_FALSE(ReadRecord(RecordKind::kPush, me, bytes.span().first(size)).ok()) << size;
  }
}

TEST(RoundRecord, OfARankWithoutPartsSaysWhatTheOthersHave) {
  const auto part = PartOf(2, 1, false);
  Round round = RoundOf(Operation::kErase, TableId{4});
  round.parts = {Of(Rank{0}, 1, 0, *part)};
  const std::vector<std::uint64_t> steps{5};
  const Bytes bytes(RecordBatches(round, Rank{3}, steps, [&](const Ticket&) { return part; }));
  const auto read = ReadRecord(RecordKind::kErase, Rank{3}, bytes.span());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->shares[0].parts.size(), 1U);
  EXPECT_TRUE(read->arrays.empty());
}

TEST(RoundRecord, HasTheKeysThatGotRows) {
  const Bytes bytes(RecordNewKeys({{TableId{1}, {Key{5}, Key{6}}}, {TableId{9}, {}}}));
  const auto read = ReadRecord(RecordKind::kNewKeys, Rank{0}, bytes.span());
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->new_keys.size(), 2U);
  EXPECT_EQ(read->new_keys[0].table, TableId{1});
  ExpectEqual(read->new_keys[0].keys, std::span<const Key>(std::vector<Key>{Key{5}, Key{6}}));
  EXPECT_TRUE(read->new_keys[1].keys.empty());
}

TEST(RoundRecord, HasATablesOptionsToTheBit) {
  TableOptions options;
  options.name = TableName("ads.v1");
  options.dim = 7;
  options.optimizer.kind = OptimizerKind::kFtrl;
  options.optimizer.learning_rate = 0.1F;
  options.initializer.seed = 0xFFFF'FFFF'FFFF'FFFE;
  options.max_load = 0.3F;
  const Bytes bytes(RecordCreateTable(TableId{3}, options, 0xABCD'EF01'2345'6789));
  const auto read = ReadRecord(RecordKind::kCreateTable, Rank{0}, bytes.span());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->table, TableId{3});
  EXPECT_EQ(read->options, options);
  EXPECT_EQ(read->lineage, 0xABCD'EF01'2345'6789);
}

TEST(RoundRecord, HasDropsAndLearningRates) {
  const auto drop = ReadRecord(RecordKind::kDropTable, Rank{0}, Bytes(RecordDropTable(TableId{3})).span());
  ASSERT_TRUE(drop.ok());
  EXPECT_EQ(drop->table, TableId{3});
  const Bytes bytes(RecordSetLearningRate(TableId{8}, 0.03F));
  const auto rate = ReadRecord(RecordKind::kSetLearningRate, Rank{0}, bytes.span());
  ASSERT_TRUE(rate.ok());
  EXPECT_EQ(rate->table, TableId{8});
  EXPECT_EQ(rate->learning_rate, 0.03F);
}

TEST(RoundRecord, HasWhichCheckpointWasLoaded) {
  const CheckpointName name{.id = "000000000012-0123456789abcdef", .checksum = 0xfedc'ba98'7654'3210u};
  const Bytes bytes(RecordLoadCheckpoint(name, 77));
  const auto loaded = ReadRecord(RecordKind::kLoadCheckpoint, Rank{1}, bytes.span());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->checkpoint, name);
  EXPECT_EQ(loaded->lineage, 77U);
  EXPECT_FALSE(
      ReadRecord(RecordKind::kLoadCheckpoint, Rank{1}, bytes.span().first(bytes.span().size() - 8)).ok());
}

TEST(RoundRecord, HasWhichTablesOfACheckpointWereLoaded) {
  const CheckpointName name{.id = "000000000012-0123456789abcdef", .checksum = 0xfedc'ba98'7654'3210u};
  const std::vector tables{TableId{2}, TableId{5}, TableId{9}};
  const Bytes bytes(RecordLoadCheckpoint(name, 77, tables));
  const auto loaded = ReadRecord(RecordKind::kLoadTables, Rank{1}, bytes.span());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->checkpoint, name);
  EXPECT_EQ(loaded->lineage, 77U);
  EXPECT_EQ(loaded->loaded, tables);
  for (std::size_t size = 0; size < bytes.span().size(); size += 8)
    EXPECT_FALSE(ReadRecord(RecordKind::kLoadTables, Rank{1}, bytes.span().first(size)).ok()) << size;
  EXPECT_FALSE(ReadRecord(RecordKind::kLoadCheckpoint, Rank{1}, bytes.span()).ok());
}

// A push without such rates is recorded without a word of them.
TEST(RoundRecord, HasEachTablesRateOfAPushThatBringsSome) {
  const auto part = PartOf(2, 7, false);
  Round round = RoundOf(Operation::kPush, TableId{3});
  round.step = {.session = 5, .number = 6, .parts = 1, .epoch = 1, .tables = 2};
  round.parts = {Of(Rank{0}, 1, 0, *part)};
  round.others = {round};
  round.others[0].table = TableId{4};
  const std::vector<std::uint64_t> steps{11, 12};
  const auto written = [&] {
    return Bytes(RecordBatches(round, Rank{0}, steps, [&](const Ticket&) { return part; }));
  };
  EXPECT_EQ(KindOfPush(round), RecordKind::kPush);
  const Bytes without = written();

  round.others[0].learning_rate = 0.0F;
  EXPECT_EQ(KindOfPush(round), RecordKind::kPushAtRates);
  const Bytes bytes = written();
  EXPECT_EQ(bytes.size - without.size, 16U);
  const auto record = ReadRecord(RecordKind::kPushAtRates, Rank{0}, bytes.span());
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->shares.at(0).learning_rate, std::nullopt);
  EXPECT_EQ(record->shares.at(1).learning_rate, std::optional(0.0F));
  EXPECT_EQ(record->shares.at(1).steps, 12U);
  EXPECT_FALSE(ReadRecord(RecordKind::kPush, Rank{0}, bytes.span()).ok());
}

TEST(RoundRecord, OfAKindThatNobodyKnowsIsRefused) {
  const auto read =
      ReadRecord(static_cast<RecordKind>(99), Rank{0}, Bytes(RecordDropTable(TableId{3})).span());
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace slotwise
