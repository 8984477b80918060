// Where starts of a server began: which acknowledged steps are lost, and what the file of starts says.
#include "server/durability/starts.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/durability/bounds.h"
#include "server/durability/checksum.h"
#include "server/durability/hex.h"
#include "tests/durability/sim_files.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr std::uint64_t kTable = 0xA1;
const std::string kPath = "data/starts.json";

// Starts 1, 2, ... that found the table with so many steps.
Starts Began(const std::vector<std::uint64_t>& steps) {
  Starts starts;
  for (std::size_t i = 0; i < steps.size(); ++i)
    starts.Add(i + 1, {{.generation = kTable, .steps = steps[i]}});
  return starts;
}

TEST(LostFrom, IsTheStepBehindWhereTheNextStartBegan) {
  const Starts starts = Began({0, 5});
  EXPECT_EQ(starts.LostFrom(kTable, 1, 7), 6U);
  EXPECT_EQ(starts.LostFrom(kTable, 1, 6), 6U);
  EXPECT_EQ(starts.LostFrom(kTable, 1, 5), 0U);
  EXPECT_EQ(starts.LostFrom(kTable, 1, 0), 0U);
  EXPECT_EQ(starts.LostFrom(kTable, 2, 7), 0U) << "the running start has all that it acknowledged";
}

TEST(LostFrom, IsNotHiddenByLaterStarts) {
  const Starts starts = Began({0, 5, 20, 30});
  EXPECT_EQ(starts.LostFrom(kTable, 1, 7), 6U) << "the second start lost step 6";
  EXPECT_EQ(starts.LostFrom(kTable, 2, 7), 0U);
  EXPECT_EQ(starts.LostFrom(kTable, 2, 21), 21U);
  EXPECT_EQ(starts.LostFrom(kTable, 3, 31), 31U);
  EXPECT_EQ(Began({0, 20, 5}).LostFrom(kTable, 1, 7), 6U) << "a later start went back further";
}

// Its record may have been lost, or it may be long ago: where it stands among the others is unknown.
TEST(LostFrom, ComparesAStartThatIsNotKnownWithTheNewestAlone) {
  EXPECT_EQ(Began({0, 5}).LostFrom(kTable, 99, 7), 6U);
  EXPECT_EQ(Began({0, 5}).LostFrom(kTable, 99, 5), 0U);
  EXPECT_EQ(Began({5, 20}).LostFrom(kTable, 99, 7), 0U);
}

TEST(LostFrom, IsNoneOfATableThatNoStartFound) {
  EXPECT_EQ(Began({0, 5}).LostFrom(kTable + 1, 1, 7), 0U);
  EXPECT_EQ(Starts().LostFrom(kTable, 1, 7), 0U);
}

TEST(LostFrom, GoesByTheTablesOwnSteps) {
  Starts starts;
  starts.Add(1, {});
  starts.Add(2, {{9, 3}, {7, 50}, {8, 40}});
  EXPECT_EQ(starts.LostFrom(7, 1, 51), 51U);
  EXPECT_EQ(starts.LostFrom(8, 1, 51), 41U);
  EXPECT_EQ(starts.LostFrom(9, 1, 51), 4U);
}

TEST(Starts, KeepThoseTogetherThatFoundTheSame) {
  const Starts starts = Began({2, 5, 5, 5});
  ASSERT_EQ(starts.all().size(), 2U);
  EXPECT_EQ(starts.all()[1].instances, (std::vector<std::uint64_t>{2, 3, 4}));
  EXPECT_EQ(starts.LostFrom(kTable, 2, 8), 6U) << "the next start began at step 5";
  EXPECT_EQ(starts.LostFrom(kTable, 2, 5), 0U) << "a step of before, which it answered again";
  EXPECT_EQ(starts.LostFrom(kTable, 3, 6), 6U);
  EXPECT_EQ(starts.LostFrom(kTable, 4, 6), 0U);
  EXPECT_EQ(starts.LostFrom(kTable, 1, 5), 0U);
}

TEST(Starts, RememberTheNewestOfALoopOfCrashes) {
  Starts starts = Began({0, 10});
  for (std::uint64_t start = 100; start < 100 + 2 * kMostStarts; ++start) starts.Add(start, {{kTable, 10}});
  ASSERT_EQ(starts.all().size(), 2U);
  EXPECT_EQ(starts.all()[1].instances.size(), kMostStarts);
  EXPECT_EQ(starts.LostFrom(kTable, 1, 11), 11U);
  EXPECT_EQ(starts.LostFrom(kTable, 2, 11), 11U) << "forgotten, and the newest began at step 10";
  EXPECT_EQ(starts.LostFrom(kTable, 99 + 2 * kMostStarts, 11), 0U);
}

TEST(Starts, AreTheNewestThirtyTwo) {
  std::vector<std::uint64_t> steps{0};
  for (std::uint64_t start = 1; start <= kMostStarts; ++start) steps.push_back(start * 10);
  const Starts starts = Began(steps);
  ASSERT_EQ(starts.all().size(), kMostStarts);
  EXPECT_EQ(starts.all().front().instances.front(), 2U);
  EXPECT_EQ(starts.LostFrom(kTable, 2, 21), 21U);
  EXPECT_EQ(starts.LostFrom(kTable, 1, 11), 0U) << "forgotten, and the newest began behind it";
}

TEST(StartsFile, ComesBackAndRefusesWhatIsNoSuchFile) {
  Starts starts;
  starts.Add(0xFEDCBA9876543210, {{0xFFFFFFFFFFFFFFFF, kMaxSteps}, {3, 0}});
  starts.Add(7, {});
  starts.Add(8, {});
  const std::string text = SerializeStarts(starts);
  const auto parsed = test::Must(ParseStarts(text, kPath));
  EXPECT_TRUE(std::ranges::equal(parsed.all(), starts.all()));
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_THAT(ParseStarts(damaged, kPath).status().message(), HasSubstr(kPath + " is damaged")) << at;
    EXPECT_FALSE(ParseStarts(text.substr(0, at), kPath).ok()) << at;
  }

  ordered_json object = ordered_json::parse(text);
  object.erase("checksum");
  const auto refused = [&](const std::string& pointer, const ordered_json& value) {
    ordered_json changed = object;
    changed[ordered_json::json_pointer(pointer)] = value;
    const std::string rest = changed.dump(1).substr(2) + "\n";
    const auto forged = ParseStarts("{\"checksum\": \"" + Hex(ChecksumOf(rest)) + "\",\n" + rest, kPath);
    EXPECT_EQ(forged.status().code(), StatusCode::kFailedPrecondition) << pointer;
    return forged.status().message();
  };
  EXPECT_THAT(refused("/format_version", 3), HasSubstr("format_version is 3"));
  EXPECT_THAT(refused("/more", 1), HasSubstr("more"));
  EXPECT_THAT(refused("/starts", 1), HasSubstr("starts"));
  EXPECT_THAT(refused("/starts/1", "x"), HasSubstr("starts[1]"));
  for (const ordered_json& wrong :
       {ordered_json(5), ordered_json::array(), ordered_json::array({5}), ordered_json::array({"12"})}) {
    EXPECT_THAT(refused("/starts/0/incarnations", wrong), HasSubstr("starts[0].incarnations"));
  }
  EXPECT_THAT(refused("/starts/1/incarnations",
                      ordered_json(std::vector(kMostStarts + 1, object["starts"][1]["incarnations"][0]))),
              HasSubstr("starts[1].incarnations does not have 1 to 32 elements"));
  EXPECT_THAT(refused("/starts/0/more", 5), AllOf(HasSubstr("starts[0]"), HasSubstr("more")));
  EXPECT_THAT(refused("/starts/0/tables/1/lineage", "12"), HasSubstr("starts[0].tables[1].lineage"));
  EXPECT_THAT(refused("/starts/0/tables/0/steps", kMaxSteps + 1), HasSubstr("starts[0].tables[0].steps"));
  EXPECT_THAT(refused("/starts", ordered_json(std::vector(kMostStarts + 1, object["starts"][1]))),
              HasSubstr("starts has more than 32 elements"));
}

TEST(StartsFile, IsReadFromAFolder) {
  SimFiles files;
  ASSERT_TRUE(files.MakeFolder("data").ok());
  EXPECT_EQ(ReadStarts(files, kPath).status().code(), StatusCode::kNotFound);
  const std::string text = SerializeStarts(Began({0, 5}));
  {
    const auto file = test::Must(files.Create(kPath));
    const auto bytes = std::as_bytes(std::span(text));
    ASSERT_TRUE(file->WriteAt(0, {&bytes, 1}).ok());
  }
  EXPECT_EQ(test::Must(ReadStarts(files, kPath)).LostFrom(kTable, 1, 7), 6U);
}

}  // namespace
}  // namespace slotwise
