// A journaled round is read back as it was, and bytes that are no record are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "server/engine/operations/alter_table.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/load_checkpoint.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/recorded_batches.h"
#include "server/engine/operations/remove_rows.h"
#include "server/engine/operations/replay.h"
#include "server/engine/operations/set_learning_rate.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using operations::AlterTable;
using operations::CreateTable;
using operations::DropTable;
using operations::LoadCheckpoint;
using operations::Lookup;
using operations::Push;
using operations::RemoveRows;
using operations::SetLearningRate;

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

Round RoundOf(TableId table) {
  Round round;
  round.table = table;
  return round;
}

TEST(Records, HasAStepOfSeveralTablesWithThePartsThatCameToTheRank) {
  const Rank me{1};
  const std::vector<std::shared_ptr<const BatchPart>> parts{
      PartOf(3, 10, false), PartOf(5, 100, true, DataType::kBFloat16), PartOf(1, 7, false)};
  Round round = RoundOf(TableId{4});
  round.step = {.session = 9, .number = 12, .parts = 2, .epoch = 3, .tables = 2};
  round.parts = {Of(Rank{0}, 1, 1, *parts[0]), Of(me, 1, 0, *parts[1])};
  Round other = RoundOf(TableId{2});
  other.parts = {Of(me, 2, 0, *parts[2])};
  round.others = {other};
  const std::vector<std::uint64_t> steps{41, 7};
  const auto arrays_of = [&](const Ticket& ticket) { return parts[ticket.number]; };
  const Bytes bytes(RecordBatches(round, me, steps, {}, arrays_of));
  EXPECT_LE(bytes.size, RecordBytes(round, me, [&](const Ticket& t) { return parts[t.number]->bytes(); }));

  const auto read = test::Must(ReadBatches(me, bytes.span()));
  EXPECT_EQ(read.step, round.step);
  ASSERT_EQ(read.shares.size(), 2U);
  EXPECT_EQ(read.shares[0].table, TableId{4});
  EXPECT_EQ(read.shares[0].steps, 41U);
  EXPECT_EQ(read.shares[1].steps, 7U);
  ASSERT_EQ(read.shares[0].parts.size(), 2U);
  EXPECT_EQ(read.shares[0].parts[0].rank, 0U);
  EXPECT_EQ(read.shares[0].parts[0].part, 1U);
  EXPECT_EQ(read.shares[0].parts[1].weighted, 1U);
  EXPECT_EQ(read.shares[0].parts[1].body, 77U);
  ASSERT_EQ(read.arrays.size(), 2U) << "those of rank 0 are in its record";
  for (std::size_t i = 0; i < 2; ++i) {
    const BatchPart& written = *parts[i + 1];
    const RecordedArrays& arrays = read.arrays[i];
    ExpectEqual(arrays.keys, written.keys.span());
    ExpectEqual(arrays.offsets, written.offsets.span());
    ExpectEqual(arrays.weights, written.weights.span());
    ExpectEqual(arrays.values, std::as_bytes(written.values.span()));
    EXPECT_EQ(arrays.value_type, written.value_type);
  }
  for (std::size_t size = 0; size < bytes.size; ++size) {
    EXPECT_FALSE(ReadBatches(me, bytes.span().first(size)).ok()) << size;
  }
}

TEST(Records, OfARankWithoutPartsSaysWhatTheOthersHave) {
  const auto part = PartOf(2, 1, false);
  Round round = RoundOf(TableId{4});
  round.parts = {Of(Rank{0}, 1, 0, *part)};
  const std::vector<std::uint64_t> steps{5};
  const Bytes bytes(RecordBatches(round, Rank{3}, steps, {}, [&](const Ticket&) { return part; }));
  const auto read = test::Must(ReadBatches(Rank{3}, bytes.span()));
  EXPECT_EQ(read.shares[0].parts.size(), 1U);
  EXPECT_TRUE(read.arrays.empty());
}

TEST(Records, HasTheKeysThatGotRows) {
  const Bytes bytes(Lookup::Write({{TableId{1}, {Key{5}, Key{6}}}, {TableId{9}, {}}}));
  const auto read = test::Must(Lookup::Read(Lookup::kRecords[0], Rank{0}, bytes.span()));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].table, TableId{1});
  ExpectEqual(read[0].keys, std::span<const Key>(std::vector<Key>{Key{5}, Key{6}}));
  EXPECT_TRUE(read[1].keys.empty());
}

TEST(Records, HasWhatARoundEvicted) {
  const std::vector<Eviction> evictions{
      {TableId{4}, {77, ~std::uint64_t{0}}, {3, 0xABCD'EF01'2345'6789}, {}, {Key{5}, Key{6}, Key{7}}},
      {TableId{2}, {0, 1}, {1, 2}, {}, {}}};
  const auto expect = [&](const std::vector<RecordedEviction>& read) {
    ASSERT_EQ(read.size(), 2U);
    for (std::size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].table, evictions[i].table);
      EXPECT_EQ(read[i].last, evictions[i].last);
      EXPECT_EQ(read[i].all, evictions[i].all);
      ExpectEqual(read[i].spared, std::span(evictions[i].spared));
    }
  };
  const auto part = PartOf(2, 1, false);
  Round round = RoundOf(TableId{4});
  round.parts = {Of(Rank{0}, 1, 0, *part)};
  const std::vector<std::uint64_t> steps{5};
  const auto arrays_of = [&](const Ticket&) { return part; };
  const Bytes batches(
      RecordBatches(round, Rank{0}, steps, {.with_rates = true, .evictions = evictions}, arrays_of));
  const std::uint64_t most = RecordBytes(round, Rank{0}, [&](const Ticket&) { return part->bytes(); });
  EXPECT_LE(batches.size, most + EvictionBytes(3) + EvictionBytes(0));
  const auto read = test::Must(ReadBatches(Rank{0}, batches.span(), true, true));
  expect(read.evictions);
  ExpectEqual(read.arrays.at(0).keys, part->keys.span());
  for (std::size_t size = 0; size < batches.size; ++size)
    EXPECT_FALSE(ReadBatches(Rank{0}, batches.span().first(size), true, true).ok()) << size;

  const Bytes lookups(
      Lookup::Write({{TableId{4}, {Key{1}}, {evictions[0]}}, {TableId{9}, {Key{2}}, {}}}, true));
  const auto found = test::Must(Lookup::Read(Lookup::kWithEvictions, Rank{0}, lookups.span()));
  ASSERT_EQ(found.size(), 2U);
  ASSERT_EQ(found[0].evicted.size(), 1U);
  EXPECT_EQ(found[0].evicted[0].last, evictions[0].last);
  ExpectEqual(found[0].evicted[0].spared, std::span(evictions[0].spared));
  ExpectEqual(found[0].keys, std::span<const Key>(std::vector<Key>{Key{1}}));
  EXPECT_TRUE(found[1].evicted.empty());
  EXPECT_FALSE(Lookup::Read(Lookup::kPlain, Rank{0}, lookups.span()).ok());
}

TEST(Records, HasATablesOptionsToTheBit) {
  TableOptions options;
  options.name = TableName("ads.v1");
  options.dim = 7;
  options.optimizer.kind = OptimizerKind::kFtrl;
  options.optimizer.learning_rate = 0.1F;
  options.initializer.seed = 0xFFFF'FFFF'FFFF'FFFE;
  options.max_load = 0.3F;
  const Bytes bytes(CreateTable::Write({TableId{3}, 0xABCD'EF01'2345'6789, options}));
  const auto read = test::Must(CreateTable::Read(CreateTable::kRecords[0], Rank{0}, bytes.span()));
  EXPECT_EQ(read.table, TableId{3});
  EXPECT_EQ(read.options, options);
  EXPECT_EQ(read.generation, 0xABCD'EF01'2345'6789);
}

TEST(Records, HasDropsAndLearningRates) {
  EXPECT_EQ(
      test::Must(ReadPlainRecord<DropTable>(Bytes(WrittenRecord<DropTable>({TableId{3}})).span())).table,
      TableId{3});
  const Bytes bytes(WrittenRecord<SetLearningRate>({TableId{8}, 0.03F}));
  const auto rate = test::Must(ReadPlainRecord<SetLearningRate>(bytes.span()));
  EXPECT_EQ(rate.table, TableId{8});
  EXPECT_EQ(rate.learning_rate, 0.03F);
}

TEST(Records, HasWhichCheckpointWasLoaded) {
  const CheckpointName name{.id = "000000000012-0123456789abcdef", .checksum = 0xfedc'ba98'7654'3210u};
  const Bytes bytes(LoadCheckpoint::Write({77, name, false, {}, {}}));
  const auto loaded = test::Must(LoadCheckpoint::Read(LoadCheckpoint::kAll, Rank{1}, bytes.span()));
  EXPECT_EQ(loaded.checkpoint, name);
  EXPECT_EQ(loaded.generations, 77U);
  EXPECT_FALSE(
      LoadCheckpoint::Read(LoadCheckpoint::kAll, Rank{1}, bytes.span().first(bytes.span().size() - 8)).ok());
}

TEST(Records, HasWhichTablesOfACheckpointWereLoaded) {
  const CheckpointName name{.id = "000000000012-0123456789abcdef", .checksum = 0xfedc'ba98'7654'3210u};
  const std::vector tables{TableId{2}, TableId{5}, TableId{9}};
  const Bytes bytes(LoadCheckpoint::Write({77, name, true, tables, {}}));
  const auto loaded = test::Must(LoadCheckpoint::Read(LoadCheckpoint::kSome, Rank{1}, bytes.span()));
  EXPECT_EQ(loaded.checkpoint, name);
  EXPECT_EQ(loaded.generations, 77U);
  EXPECT_EQ(loaded.tables, tables);
  for (std::size_t size = 0; size < bytes.span().size(); size += 8)
    EXPECT_FALSE(LoadCheckpoint::Read(LoadCheckpoint::kSome, Rank{1}, bytes.span().first(size)).ok()) << size;
  EXPECT_FALSE(LoadCheckpoint::Read(LoadCheckpoint::kAll, Rank{1}, bytes.span()).ok());
}

TEST(Records, HasAsWhatACheckpointsRowsWereLoaded) {
  const CheckpointName name{.id = "000000000012-0123456789abcdef", .checksum = 0xfedc'ba98'7654'3210u};
  for (const std::vector<TableId>& tables : {std::vector<TableId>{}, {TableId{2}, TableId{5}}}) {
    const LoadCheckpoint::Record record{.generations = 77,
                                        .checkpoint = name,
                                        .some = !tables.empty(),
                                        .tables = tables,
                                        .rows_as = RowType{DataType::kBFloat16, Rounding::kNearest}};
    EXPECT_EQ(LoadCheckpoint::KindOf(record), LoadCheckpoint::kAsOtherRows);
    const Bytes bytes(LoadCheckpoint::Write(record));
    EXPECT_EQ(test::Must(LoadCheckpoint::Read(LoadCheckpoint::kAsOtherRows, Rank{1}, bytes.span())), record);
    for (std::size_t size = 0; size < bytes.span().size(); size += 8)
      EXPECT_FALSE(
          LoadCheckpoint::Read(LoadCheckpoint::kAsOtherRows, Rank{1}, bytes.span().first(size)).ok());
  }
}

// A push without such rates is recorded without a word of them.
TEST(Records, HasEachTablesRateOfAPushThatBringsSome) {
  const auto part = PartOf(2, 7, false);
  Round round = RoundOf(TableId{3});
  round.step = {.session = 5, .number = 6, .parts = 1, .epoch = 1, .tables = 2};
  round.parts = {Of(Rank{0}, 1, 0, *part)};
  round.others = {round};
  round.others[0].table = TableId{4};
  const std::vector<std::uint64_t> steps{11, 12};
  const auto written = [&] {
    return Bytes(RecordBatches(round, Rank{0}, steps, {.with_rates = BringsRates(round)},
                               [&](const Ticket&) { return part; }));
  };
  EXPECT_FALSE(BringsRates(round));
  const Bytes without = written();

  round.others[0].learning_rate = 0.0F;
  EXPECT_TRUE(BringsRates(round));
  const Bytes bytes = written();
  EXPECT_EQ(bytes.size - without.size, 16U);
  const auto record = test::Must(Push::Read(Push::kAtOwnRates, Rank{0}, bytes.span()));
  EXPECT_EQ(record.shares.at(0).learning_rate, std::nullopt);
  EXPECT_EQ(record.shares.at(1).learning_rate, std::optional(0.0F));
  EXPECT_EQ(record.shares.at(1).steps, 12U);
  EXPECT_FALSE(Push::Read(Push::kAtTablesRates, Rank{0}, bytes.span()).ok());
}

TEST(Records, HasAnAlteration) {
  const AlterTable::Record record{.table = TableId{3},
                                  .candidates = TableId{9},
                                  .steps = 0x11,
                                  .last = {0x33, 0x44},
                                  .removed = {0x55, 0x66},
                                  .options = "{some text}"};
  const Bytes bytes(AlterTable::Write(record));
  EXPECT_EQ(test::Must(AlterTable::Read(AlterTable::kRecords[0], Rank{1}, bytes.span())), record);
  for (std::size_t size = 0; size < bytes.span().size(); size += 8)
    EXPECT_FALSE(AlterTable::Read(AlterTable::kRecords[0], Rank{1}, bytes.span().first(size)).ok()) << size;
}

// What servers have written is read by all that come later.
TEST(Records, HaveTheBytesThatTheyHadBefore) {
  const auto hex = [](const std::vector<JournalPiece>& pieces) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (const JournalPiece& piece : pieces) {
      for (const std::byte byte : piece.bytes) {
        text += kDigits[std::to_integer<unsigned>(byte) >> 4];
        text += kDigits[std::to_integer<unsigned>(byte) & 15];
      }
    }
    return text;
  };
  EXPECT_EQ(hex(WrittenRecord<SetLearningRate>({TableId{8}, 0.03F})), "080000008fc2f53c");
  EXPECT_EQ(hex(WrittenRecord<DropTable>({TableId{3}})), "0300000000000000");
  EXPECT_EQ(
      hex(RemoveRows::Write({.table = TableId{3},
                             .flags = RemoveRows::kRemoves | RemoveRows::kSweeps,
                             .steps = 0x11,
                             .seconds = 0x22,
                             .last = {0x33, 0x44},
                             .removed = {0x55, 0x66}})),
      "0300000005000000110000000000000022000000000000003300000000000000440000000000000055000000000000006600"
      "000000000000");
  EXPECT_EQ(hex(AlterTable::Write({.table = TableId{3},
                                   .candidates = TableId{9},
                                   .steps = 0x11,
                                   .last = {0x33, 0x44},
                                   .removed = {0x55, 0x66},
                                   .options = "{}"})),
            "030000000900000011000000000000003300000000000000440000000000000055000000000000006600000000000000"
            "02000000000000007b7d000000000000");
  EXPECT_EQ(hex(Lookup::Write({{TableId{1}, {Key{5}, Key{6}}}, {TableId{9}, {}}})),
            "02000000010000000200000000000000050000000000000006000000000000000900000000000000"
            "0000000000000000");
  const CheckpointName name{.id = "000000000012-0123456789abcdef", .checksum = 0xfedc'ba98'7654'3210u};
  EXPECT_EQ(hex(LoadCheckpoint::Write({77, name, true, {TableId{2}, TableId{5}, TableId{9}}, {}})),
            "4d000000000000001032547698badcfe1d000000030000003030303030303030303031322d303132"
            "3334353637383961626364656600000002000000050000000900000000000000");
}

}  // namespace
}  // namespace slotwise
