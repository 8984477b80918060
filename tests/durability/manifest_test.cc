// The text of manifest.json: what it says comes back, and all else is refused by name.
#include "server/durability/manifest.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "server/durability/bounds.h"
#include "server/durability/checksum.h"
#include "server/durability/hex.h"
#include "server/durability/options_text.h"
#include "server/durability/table_arrays.h"
#include "tests/durability/checkpoint_rig.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

const std::string kPath = "checkpoints/x/manifest.json";

// A manifest of 2 tables and 2 ranks with something in every field.
Manifest Specimen(bool is_delta) {
  SimFiles files;
  EXPECT_TRUE(MakeCheckpointFolder(files).ok());
  TableOfTest adam{.id = 3, .options = OptionsOf(OptimizerKind::kAdam, 2), .type = DataType::kFloat16};
  adam.options.ttl_seconds = 3600;
  adam.rows = RowsOf(0, 50, 1, WidthOf(adam.options));
  adam.rows[KeyAt(7)][0] = 0.1F;  // which float16 does not hold
  adam.options.optimizer.schedule.end_learning_rate = 1e-7F;
  TableOfTest sgd{.id = 9, .options = OptionsOf(OptimizerKind::kSgd, 1), .rows = RowsOf(0, 9, 1, 1)};
  CheckpointOfTest checkpoint{.id = "x", .tables = {adam, sgd}, .ranks = 2, .owners = EvenOwners(2)};
  std::fill_n(checkpoint.owners->begin(), 100, std::uint16_t{1});
  checkpoint.created = kMaxCreated;
  if (is_delta) {
    checkpoint.parent = {.id = "before", .checksum = 0x0123456789abcdef};
    checkpoint.tables[0].erased = {KeyAt(100), KeyAt(101), KeyAt(102)};
  }
  Manifest manifest = MustSave(files, checkpoint);
  manifest.tables[0].expiry = {.swept_steps = 3, .marks = {{1000, 5}, {1000, 6}, {2000, 6}}};
  if (!is_delta) manifest.folds = {.id = "tip", .checksum = 0xf000000000000001};
  EXPECT_TRUE(SerializeManifest(manifest).ok());
  return manifest;
}

std::string Text(Manifest manifest) { return test::Must(SerializeManifest(manifest)); }

// Puts the checksum's line before a text.
std::string Seal(const std::string& text) {
  return "{\"checksum\": \"" + Hex(ChecksumOf(text)) + "\",\n" + text;
}

std::string Seal(ordered_json object) {
  object.erase("checksum");
  return Seal(object.dump(1).substr(2) + "\n");
}

void ExpectRefused(const std::string& text, const std::string& what) {
  const auto parsed = ParseManifest(text, kPath);
  ASSERT_FALSE(parsed.ok()) << "taken, though " << what;
  EXPECT_EQ(parsed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(parsed.status().message(), ::testing::StartsWith(kPath));
  EXPECT_THAT(parsed.status().message(), HasSubstr(what));
}

// "/tables/0/id" -> "tables[0].id"
std::string NameOf(const std::string& pointer) {
  std::string name;
  for (std::size_t at = 1; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at), pointer.size());
    const std::string part = pointer.substr(at, end - at);
    if (part.find_first_not_of("0123456789") == std::string::npos) {
      name += "[" + part + "]";
    } else {
      name += (name.empty() ? "" : ".") + part;
    }
    at = end + 1;
  }
  return name;
}

// Calls visit(pointer, value) for each value in objects, however deep, but the checksum, and what options of
// tables say, which protobuf reads.
void EachField(const ordered_json& value, const std::string& pointer,
               const std::function<void(const std::string&, const ordered_json&)>& visit) {
  if (!value.is_structured()) return;
  for (const auto& [name, field] : value.items()) {
    const std::string place = pointer + "/" + name;
    if (place == "/checksum") continue;
    if (value.is_object()) visit(place, field);
    if (name != "bucket_owners" && name != "options") EachField(field, place, visit);
  }
}

ordered_json With(const ordered_json& object, const std::string& pointer, const ordered_json& value) {
  ordered_json changed = object;
  changed[ordered_json::json_pointer(pointer)] = value;
  return changed;
}

ordered_json Without(const ordered_json& object, const std::string& pointer) {
  ordered_json changed = object;
  const ordered_json::json_pointer place(pointer);
  changed[place.parent_pointer()].erase(place.back());
  return changed;
}

class ManifestTest : public ::testing::TestWithParam<bool> {
 protected:
  const Manifest manifest_ = Specimen(GetParam());
  const std::string text_ = Text(manifest_);
  const ordered_json json_ = ordered_json::parse(text_);
};

INSTANTIATE_TEST_SUITE_P(Kinds, ManifestTest, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Delta" : "Base"; });

TEST_P(ManifestTest, ComesBackToTheBit) {
  const auto parsed = test::Must(ParseManifest(text_, kPath));
  EXPECT_TRUE(parsed == manifest_);
  EXPECT_EQ(Text(parsed), text_);
  EXPECT_EQ(Seal(json_), text_) << "what the tests below change is what they mean to";
  EXPECT_GT(parsed.tables[0].ranks[0].largest_error + parsed.tables[0].ranks[1].largest_error, 0);
  EXPECT_EQ(parsed.tables[0].options.optimizer.schedule.end_learning_rate, 1e-7F);
  EXPECT_EQ(parsed.is_delta(), GetParam());
}

TEST_P(ManifestTest, IsRefusedIfAnyOneBitIsAnother) {
  for (std::size_t at = 0; at < text_.size(); ++at) {
    std::string other = text_;
    other[at] = static_cast<char>(other[at] ^ 1 << at % 8);
    ExpectRefused(other, "is damaged");
  }
}

TEST_P(ManifestTest, IsRefusedIfItEndsEarlyOrLate) {
  for (std::size_t size = 0; size < text_.size(); ++size) ExpectRefused(text_.substr(0, size), "is damaged");
  ExpectRefused(text_ + " ", "is damaged");
  ExpectRefused(Seal(std::string("x")), "is no JSON");
  ExpectRefused(Seal(text_.substr(32, 500)), "is no JSON");
  ExpectRefused(Seal(text_.substr(32) + "{}"), "is no JSON");
}

TEST_P(ManifestTest, NamesTheFieldThatIsMissing) {
  int fields = 0;
  EachField(json_, "", [&](const std::string& pointer, const ordered_json& value) {
    SCOPED_TRACE(pointer);
    ++fields;
    if (value.is_array() || pointer == "/folds") return;  // one that is empty or absent is another manifest
    const std::string name = NameOf(pointer);
    ExpectRefused(Seal(Without(json_, pointer)),
                  name == "format_version" ? "format_version is missing" : name + " is missing");
    ExpectRefused(Seal(With(json_, pointer, nullptr)), name + " is ");
  });
  for (const std::string pointer : {"/tables/0/bucket_owners", "/tables/0/ranks", "/tables/1/ranks/0/files"})
    ExpectRefused(Seal(Without(json_, pointer)), NameOf(pointer) + " has 0 ");
  EXPECT_GT(fields, 90);
}

TEST_P(ManifestTest, RefusesATableOfTheIdThatNoneHas) {
  ExpectRefused(Seal(With(json_, "/tables/0/id", 0)), "tables[0].id is no whole number from 1 ");
}

// Protobuf says which field, in words of its own, and where in the text it was: "tables[0].id", or
// "(tables[0])" and the field.
TEST_P(ManifestTest, NamesTheFieldThatIsMistyped) {
  EachField(json_, "", [&](const std::string& pointer, const ordered_json& value) {
    SCOPED_TRACE(pointer);
    const auto expect_refused = [&](const ordered_json& other) {
      ExpectRefused(Seal(With(json_, pointer, other)), pointer.substr(pointer.rfind('/') + 1));
    };
    expect_refused(ordered_json::array({ordered_json::array({1})}));
    if (pointer != "/server_version") expect_refused("x y");
    if (!value.is_structured()) expect_refused(ordered_json::object({{"id", 1}}));
    if (value.is_number()) expect_refused(true);
    if (value.is_number()) expect_refused(-1);
    if (value.is_number() && !pointer.ends_with("learning_rate") && !pointer.ends_with("largest_error"))
      expect_refused(0.5);
    if (value.is_number()) expect_refused(1e300);
  });
}

// Numbers of 64 bits are strings, which JavaScript does not round.
TEST_P(ManifestTest, HasAsJsonWhatProtobufSays) {
  EXPECT_EQ(json_["created"], std::to_string(kMaxCreated));
  EXPECT_EQ(json_["ranks"], 2);
  EXPECT_EQ(json_["tables"][0]["learning_rate"].get<float>(), manifest_.tables[0].learning_rate);
  EXPECT_EQ(json_["tables"][0]["bucket_owners"][0], (ordered_json{{"rank", 1}, {"buckets", 100}}));
  EXPECT_EQ(json_.contains("parent"), GetParam());
  EXPECT_EQ(test::Must(ParseManifest(Seal(With(json_, "/created", kMaxCreated)), kPath)).created, kMaxCreated)
      << "a number is read too, as version 1 has it";
}

TEST_P(ManifestTest, HasOptionsOfTablesAsProtobufHasThem) {
  const ordered_json& options = json_["tables"][0]["options"];
  EXPECT_EQ(options["optimizer"]["adam"]["corrected_epsilon"], false) << "every option is said";
  const auto expect_refused = [&](const std::string& pointer, const ordered_json& value,
                                  const std::string& what) {
    SCOPED_TRACE(pointer + " = " + value.dump());
    ExpectRefused(Seal(With(json_, "/tables/0/options" + pointer, value)),
                  what.empty() ? "options" : "tables[0].options cannot make a table: " + what);
  };
  expect_refused("/dim", 0, "dim is 0");
  expect_refused("/dim", 0x1'0000'0000, "");
  expect_refused("/dim", "x", "");
  expect_refused("/max_load", 2, "max_load is 2");
  expect_refused("/combiner", "COMBINER_MAX", "");
  expect_refused("/more", 1, "");
  expect_refused("/optimizer/adamant", ordered_json::object(), "");
  expect_refused("/optimizer/adam/more", 1, "");
  expect_refused("/optimizer/adam/corrected_epsilon", "maybe", "");
  expect_refused("/optimizer/sgd", ordered_json::object(), "");  // a second kind
  // A version that does not know an option yet leaves it out.
  const auto parsed = test::Must(ParseManifest(Seal(Without(json_, "/tables/0/options/max_load")), kPath));
  EXPECT_EQ(parsed.tables[0].options.max_load, 0.5F);
}

TEST_P(ManifestTest, OfVersion2HasNumbersAndPairs) {
  ordered_json old = With(json_, "/format_version", 2);
  old["created"] = kMaxCreated;
  for (ordered_json& table : old["tables"]) table["bucket_owners"] = {{1, 100}, {0, 1948}, {1, 2048}};
  Manifest expected = manifest_;
  Manifest parsed = test::Must(ParseManifest(Seal(old), kPath));
  expected.checksum = parsed.checksum;
  EXPECT_TRUE(parsed == expected);
  ExpectRefused(Seal(With(old, "/format_version", 3)), "bucket_owners");
}

// As 0.1.0 wrote the options of SGD, of a table of one dim.
const ordered_json kFlat = ordered_json::parse(R"({
  "name": "", "dim": 1, "slots": 1, "combiner": "sum", "optimizer": "sgd", "learning_rate": 0.0,
  "warmup_steps": 0, "decay_start": 0, "decay_steps": 0, "decay_power": 2.0, "end_learning_rate": 0.0,
  "weight_decay": 0.0, "epsilon": 1.000000013351432e-10, "initial_accumulator": 0.0,
  "momentum": 0.8999999761581421, "beta1": 0.8999999761581421, "beta2": 0.9990000128746033, "ftrl_beta": 1.0,
  "lambda1": 0.0, "lambda2": 0.0, "initializer": "uniform", "low": -0.05000000074505806,
  "high": 0.05000000074505806, "seed": "fedcba9876543210", "mean": 0.0, "deviation": 0.0, "initial_rows": 0,
  "max_rows": 1073741824, "max_load": 0.5})");

TEST_P(ManifestTest, OfVersion1HasFlatOptions) {
  ordered_json old = json_;
  old["format_version"] = 1;
  old["created"] = kMaxCreated;
  if (!GetParam()) old["parent"] = nullptr;
  const TableOptions& options = manifest_.tables[1].options;
  old["tables"].erase(0);
  old["tables"][0]["options"] = kFlat;
  old["tables"][0]["bucket_owners"] = {{1, 100}, {0, 1948}, {1, 2048}};
  old["tables"][0]["options"]["name"] = options.name.str();
  old["tables"][0]["options"]["learning_rate"] = options.optimizer.learning_rate;
  const auto parsed = test::Must(ParseManifest(Seal(old), kPath));
  EXPECT_EQ(parsed.tables[0].options, options);
  EXPECT_THAT(Text(parsed), HasSubstr("\"format_version\": 3"));

  const std::string pointer = "/tables/0/options";
  for (const auto& [name, value] : old["tables"][0]["options"].items()) {
    SCOPED_TRACE(name);
    ExpectRefused(Seal(Without(old, pointer + "/" + name)), "tables[0].flat_options." + name + " is missing");
    ExpectRefused(Seal(With(old, pointer + "/" + name, nullptr)), "tables[0].flat_options." + name + " is ");
  }
  ExpectRefused(Seal(With(old, pointer + "/more", 1)), "more");
  ExpectRefused(Seal(With(old, pointer + "/optimizer", "adamant")), "options.optimizer is 'adamant'");
  ExpectRefused(Seal(With(old, pointer + "/optimizer", "unknown")), "options.optimizer is 'unknown'");
  ExpectRefused(Seal(With(old, pointer + "/seed", "ABCDEF0123456789")), "tables[0].flat_options.seed");
  ExpectRefused(Seal(With(old, pointer + "/dim", 0)), "tables[0].flat_options cannot make a table");
  ExpectRefused(Seal(With(old, pointer, json_["tables"][1]["options"])), "flat_options");
  ExpectRefused(Seal(With(old, pointer, 1)), "flat_options");
  ExpectRefused(Seal(Without(old, pointer)), "tables[0].flat_options is missing");
  ExpectRefused(Seal(With(json_, "/tables/1/options", old["tables"][0]["options"])), "options");
  ExpectRefused(Seal(With(json_, "/tables/1/flat_options", old["tables"][0]["options"])),
                "tables[1].flat_options is unknown");
  for (const std::string place : {"/tables", "/tables/0", "/tables/0/ranks", "/tables/0/bucket_owners",
                                  "/tables/0/bucket_owners/1", "/tables/0/bucket_owners/1/0"}) {
    for (const ordered_json& other : {ordered_json(true), ordered_json("x"), ordered_json({{"a", {1, 2}}})})
      ExpectRefused(Seal(With(old, place, other)), kPath);
  }
  EXPECT_EQ(test::Must(FlatOptionsFromText(old["tables"][0]["options"].dump())), options);
  EXPECT_EQ(FlatOptionsFromText(kFlat.dump()).status().code(), StatusCode::kDataLoss);
}

TEST_P(ManifestTest, NamesTheFieldThatIsUnknown) {
  const auto expect_refused = [&](const std::string& pointer) {
    ExpectRefused(Seal(With(json_, pointer + "/more", 1)), "more: Cannot find field");
    ExpectRefused(Seal(With(json_, pointer + "/more", 1)), NameOf(pointer));
  };
  expect_refused("");
  EachField(json_, "", [&](const std::string& pointer, const ordered_json& value) {
    if (value.is_object() && !pointer.ends_with("/options")) expect_refused(pointer);
  });
  for (const std::string array : {"/tables", "/tables/1/ranks", "/tables/0/ranks/1/files"})
    expect_refused(array + "/0");
}

TEST_P(ManifestTest, NamesTheFieldThatIsUnfit) {
  const std::string rank = "/tables/0/ranks/1";
  const auto expect_refused = [&](const std::string& pointer, const ordered_json& value,
                                  const std::string& what) {
    SCOPED_TRACE(pointer + " = " + value.dump().substr(0, 100));
    ExpectRefused(Seal(With(json_, pointer, value)), what);
  };
  expect_refused("/format_version", 4, "format_version is 4, and this version of Slotwise reads 1 to 3");
  expect_refused("/format_version", 0, "format_version");
  for (const std::string id : {"", "../x", ".x", "-x", "a b", "\xc3\xa4"})
    expect_refused("/id", id, "id is '");
  expect_refused("/id", std::string(65, 'a'), "id is '");
  expect_refused("/kind", "full", "kind is neither");
  expect_refused("/server_version", "", "server_version");
  expect_refused("/server_version", std::string(65, 'v'), "server_version");
  expect_refused("/server_version", "1\n", "server_version");
  expect_refused("/ranks", 0, "ranks is no whole number from 1 to 4096");
  expect_refused("/ranks", 4097, "ranks is no whole number from 1 to 4096");
  expect_refused("/ranks", 1, "tables[0].bucket_owners has a run that does not fit 1 ranks");
  expect_refused("/ranks", 3, "tables[0].ranks has 2 elements, not 3");
  for (const std::uint64_t most : {0xFFFF'FFFFUL, 0xFFFF'0001UL})  // no later table would have an id
    expect_refused("/next_table_id", most, "next_table_id is no whole number from 0 to 4294901760");
  expect_refused("/next_table_id", 0x1'0000'0000, "next_table_id");
  expect_refused("/round", kMaxRound + 1, "round is no whole number from 0 to 4611686018427387904");
  expect_refused("/created", kMaxCreated + 1, "created is no whole number");
  expect_refused("/ledger_epoch", kMaxEpoch + 1, "ledger_epoch is no whole number");
  expect_refused("/tables/1/steps", kMaxSteps + 1, "tables[1].steps is no whole number");
  expect_refused("/tables/1/lineage", "0000000000000000", "tables[1].lineage is 0");
  expect_refused("/tables/1/options/name", json_["tables"][0]["options"]["name"],
                 "tables[1].options.name is that of a table before it");
  expect_refused("/next_table_id", 9, "tables[1].id is not below next_table_id");
  expect_refused("/tables", ordered_json(std::vector(65537, ordered_json::object())),
                 "tables has more than 65536 elements");
  expect_refused("/tables/0/id", 9, "tables[1].id is not above the id before it");
  expect_refused("/tables/0/options/dim", 3, "tables[0].ranks[0].files[2].bytes is");
  expect_refused("/tables/0/learning_rate", -1, "tables[0].learning_rate is out of range");
  expect_refused("/tables/0/value_type", "float64", "tables[0].value_type is 'float64'");
  expect_refused("/tables/0/value_type", "float32", "tables[0].ranks[0].files[2].bytes is");
  expect_refused(rank + "/rows", 0xFFFF'FFFF,
                 "tables[0].ranks[1].rows is no whole number from 0 to 4294967294");
  expect_refused(rank + "/rows", 1, "tables[0].ranks[1].files[0].bytes is");
  expect_refused(rank + "/erased", (1ULL << 40) + 1, "tables[0].ranks[1].erased is no whole number");
  expect_refused(rank + "/largest_error", -1, "tables[0].ranks[1].largest_error is below 0");
  expect_refused(rank + "/files", ordered_json::array(), "tables[0].ranks[1].files has 0 elements");
}

// The id of a server's checkpoint says what it is of, and recovery skips the journal up to there.
TEST_P(ManifestTest, IsOfTheRoundAndTheInstanceThatItsIdSays) {
  const auto of = [&](const std::string& id, std::uint64_t round, std::uint64_t instance) {
    ordered_json other = With(json_, "/id", id);
    other["round"] = round;
    other["incarnation"] = Hex(instance);
    return Seal(other);
  };
  for (const std::string more : {"", "-folded", "-folded-0f0f0f0f"}) {
    const std::string id = "000000000042-00000000000000ab" + more;
    EXPECT_TRUE(ParseManifest(of(id, 42, 0xab), kPath).ok());
    for (const std::uint64_t round : {std::uint64_t{0}, std::uint64_t{41}, std::uint64_t{43}, kMaxRound})
      ExpectRefused(of(id, round, 0xab), "round is " + std::to_string(round) + ", but the id says 42");
    ExpectRefused(of(id, 42, 0xac), "incarnation is 00000000000000ac, but the id says 00000000000000ab");
  }
  const std::string late = std::to_string(kMaxRound) + "-00000000000000ab";
  EXPECT_TRUE(ParseManifest(of(late, kMaxRound, 0xab), kPath).ok());
  for (const std::uint64_t round : {std::uint64_t{1} << 63, ~std::uint64_t{0}})
    ExpectRefused(of(std::to_string(round) + "-00000000000000ab", round, 0xab), "round is no whole number");
}

TEST_P(ManifestTest, DoesNotNestDeep) {
  const std::string deep = "\"x\": " + std::string(100'000, '[') + std::string(100'000, ']') + ", ";
  ExpectRefused(Seal(deep + text_.substr(32)), "has brackets within brackets");
  EXPECT_TRUE(ParseManifest(Seal(With(json_, "/server_version", std::string(60, '['))), kPath).ok());
  EXPECT_TRUE(ParseManifest(Seal(With(json_, "/server_version", "\"[[[[[[[[[[[[[[[[[[[[\\")), kPath).ok());
}

TEST_P(ManifestTest, TakesNoFileOfAnotherName) {
  const auto expect_refused = [&](const std::string& pointer, const std::string& name) {
    ExpectRefused(Seal(With(json_, pointer, name)), NameOf(pointer) + " is '" + name + "', not '");
  };
  EachField(json_, "", [&](const std::string& pointer, const ordered_json& value) {
    if (!pointer.ends_with("/name") || pointer.find("options") != std::string::npos) return;
    const auto name = value.get<std::string>();
    for (const std::string& other :
         {std::string(), "../" + name, "/" + name, name + "x", std::string("rank-0.npy")})
      expect_refused(pointer, other);
  });
  expect_refused("/tables/0/ranks/1/files/0/name", "rank-0.keys.npy");
  expect_refused("/tables/0/ranks/1/files/0/name", "rank-1.starts.npy");
}

TEST_P(ManifestTest, ChecksumsAreOneForEachBlockAndSmallHexadecimalDigits) {
  for (const std::string& file : {std::string("/ledger"), std::string("/tables/0/ranks/1/files/2")}) {
    const std::string pointer = file + "/block_xxh3";
    const auto digits = json_.at(ordered_json::json_pointer(pointer)).get<std::string>();
    for (const std::string& other : {std::string(), digits.substr(1), digits + "0", digits + digits})
      ExpectRefused(Seal(With(json_, pointer, other)),
                    NameOf(pointer) + " has " + std::to_string(other.size()));
    for (const char c : {'A', 'g', ' ', '-', '+', 'x', '\x01'}) {
      std::string other = digits;
      other[digits.size() - 16] = c;
      ExpectRefused(Seal(With(json_, pointer, other)), NameOf(pointer) + " has other characters");
    }
    for (const std::uint64_t bytes : {std::uint64_t{0}, (std::uint64_t{1} << 30) + 1})
      ExpectRefused(Seal(With(json_, file + "/block_bytes", bytes)), NameOf(file) + ".block_bytes is no");
  }
  ExpectRefused(Seal(With(json_, "/ledger/bytes", (1ULL << 50) + 1)), "ledger.bytes is no");
  ExpectRefused(Seal(With(json_, "/ledger/bytes", 100000)), "ledger.block_xxh3 has 16 digits");
}

TEST_P(ManifestTest, IdentitiesAre16SmallHexadecimalDigits) {
  for (const std::string pointer : {"/data_lineage", "/incarnation", "/tables/1/lineage"}) {
    for (const std::string other :
         {"", "0", "123456789abcdef", "0123456789abcdef0", "0123456789ABCDEF", "0x23456789abcdef",
          "+123456789abcdef", " 123456789abcdef", "123456789abcdef "})
      ExpectRefused(Seal(With(json_, pointer, other)),
                    NameOf(pointer) + " is no string of 16 hexadecimal digits");
  }
}

TEST_P(ManifestTest, OwnersAreRunsThatFillAllBuckets) {
  using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;  // rank, buckets
  const auto with = [&](const Runs& runs) {
    ordered_json owners = ordered_json::array();
    for (const auto& [rank, buckets] : runs) owners.push_back({{"rank", rank}, {"buckets", buckets}});
    return Seal(With(json_, "/tables/1/bucket_owners", owners));
  };
  for (const Runs& runs : {Runs{}, Runs{{0, 4095}}, Runs{{0, 4097}}, Runs{{2, 4096}}, Runs{{0, 0}, {0, 4096}},
                           Runs{{0, 4096}, {1, 1}}, Runs{{65536, 4096}}, Runs{{0, 0xFFFF'FFFF}, {0, 4096}}})
    ExpectRefused(with(runs), "tables[1].bucket_owners has ");
  ExpectRefused(with(Runs{{0, -1}}), "buckets");
  ExpectRefused(with(Runs{{0, 0x1'0000'0000}}), "buckets");
  ExpectRefused(with(Runs(4097, {0, 1})), "tables[1].bucket_owners has more than 4096 elements");
  const auto taken = test::Must(ParseManifest(with({{1, 1}, {0, 4095}}), kPath));
  EXPECT_EQ(taken.tables[1].owners[0], 1);
  EXPECT_EQ(taken.tables[1].owners[1], 0);
}

TEST(Manifest, OnlyADeltaHasAParentAndErasedKeysAndOnlyABaseFolds) {
  const auto base = ordered_json::parse(Text(Specimen(false)));
  const auto delta = ordered_json::parse(Text(Specimen(true)));
  ExpectRefused(Seal(With(base, "/parent", delta["parent"])), "parent is there, but this is a base");
  ExpectRefused(Seal(With(base, "/kind", "delta")), "parent is missing in a delta");
  ExpectRefused(Seal(With(delta, "/kind", "base")), "parent is there, but this is a base");
  ExpectRefused(Seal(With(delta, "/folds", base["folds"])), "folds is there, but this is a delta");
  ExpectRefused(Seal(With(delta, "/parent/id", "a/b")), "parent.id is 'a/b'");
  ExpectRefused(Seal(With(base, "/folds/checksum", "1")), "folds.checksum is no");
  ExpectRefused(Seal(With(base, "/tables/0/ranks/0/erased", 0)),
                "tables[0].ranks[0].erased is there, but this is a base");
  EXPECT_TRUE(ParseManifest(Seal(With(base, "/folds", nullptr)), kPath).ok());
}

// The entries of a table that counts candidates, and of those.
std::vector<TableEntry> Counting(const Manifest& of) {
  TableEntry table = of.tables[1];
  table.options.admission = {.kind = AdmissionKind::kFrequency, .threshold = 3};
  TableEntry candidates = of.tables[1];
  candidates.id = TableId{Value(table.id) + 3};
  candidates.options = CandidatesOf(table.options);
  // Files of rows with another optimizer's state would not fit: there are none.
  for (RankEntry& rank : candidates.ranks) {
    rank = {};
    const auto number = static_cast<std::uint32_t>(&rank - candidates.ranks.data());
    for (const auto& array : ArraysOf(candidates.options, candidates.value_type, number, 0, {}).All()) {
      rank.files.push_back(
          {.name = array.name, .bytes = array.bytes(), .block_bytes = 1 << 20, .checksums = {7}});
    }
  }
  return {table, candidates};
}

TEST(Manifest, HasTheOptionsOfBeforeAnAlteration) {
  Manifest manifest = Specimen(false);
  manifest.tables[0].made = manifest.tables[0].options;
  manifest.tables[0].made->max_rows = 99;
  const std::string text = Text(manifest);
  EXPECT_THAT(text, HasSubstr("made_with"));
  const Manifest parsed = test::Must(ParseManifest(text, kPath));
  manifest.checksum = parsed.checksum;
  EXPECT_EQ(parsed, manifest);
  const ordered_json json = ordered_json::parse(text);
  ExpectRefused(Seal(With(json, "/tables/0/made_with/dim", 5)),
                "tables[0].made_with is no table that can be altered to the one of options");
  ExpectRefused(Seal(With(json, "/tables/0/made_with/max_rows", "18446744073709551615")),
                "tables[0].made_with cannot make a table: max_rows is");
}

TEST(Manifest, HasCandidatesBehindTheirTable) {
  Manifest manifest = Specimen(false);
  const std::vector<TableEntry> counting = Counting(manifest);
  manifest.next_table_id = 50;
  manifest.tables = {manifest.tables[0], counting[0], counting[1]};
  ASSERT_TRUE(SerializeManifest(manifest).ok()) << SerializeManifest(manifest).status().message();
  EXPECT_EQ(&manifest.CandidatesOf(manifest.tables[1]), &manifest.tables[2]);
  const auto refused = [&](const std::vector<TableEntry>& tables) {
    Manifest other = manifest;
    other.tables = tables;
    return SerializeManifest(other).status().message();
  };
  EXPECT_THAT(refused({manifest.tables[0], counting[0]}), HasSubstr("lacks"));
  EXPECT_THAT(refused({manifest.tables[0], counting[1]}), HasSubstr("of no table before it"));
  std::vector<TableEntry> others = manifest.tables;
  others[2].options.max_rows = 5;
  EXPECT_THAT(refused(others), HasSubstr("of no table before it that counts candidates so"));
}

// A manifest of before there was a choice of counters.
TEST(Manifest, CountsExactlyIfItDoesNotSay) {
  Manifest manifest = Specimen(false);
  const std::vector<TableEntry> counting = Counting(manifest);
  manifest.next_table_id = 50;
  manifest.tables = {manifest.tables[0], counting[0], counting[1]};
  ordered_json json = ordered_json::parse(Text(manifest));
  auto& frequency = json["tables"][1]["options"]["admission"]["frequency"];
  ASSERT_EQ(frequency["counter"], "COUNTER_EXACT");
  frequency.erase("counter");
  frequency.erase("counter_mib");
  const Manifest parsed = test::Must(ParseManifest(Seal(json), kPath));
  EXPECT_EQ(parsed.tables[1].options, counting[0].options);
}

TEST(Manifest, WhatWouldBeRefusedIsNotWritten) {
  const Manifest good = Specimen(true);
  const auto expect_refused = [&](const std::string& what, const std::function<void(Manifest&)>& change) {
    Manifest bad = good;
    change(bad);
    test::ExpectStatus(SerializeManifest(bad).status(), StatusCode::kFailedPrecondition, what);
  };
  expect_refused("id is", [](Manifest& m) { m.id = "a/b"; });
  expect_refused("server_version", [](Manifest& m) { m.server_version = "\xff\xfe"; });
  expect_refused("tables[0].options", [](Manifest& m) { m.tables[0].options.dim = 0; });
  expect_refused("tables[1].id", [](Manifest& m) { std::swap(m.tables[0].id, m.tables[1].id); });
  expect_refused("tables[0].ranks", [](Manifest& m) { m.tables[0].ranks.pop_back(); });
  expect_refused("tables[0].ranks[0].largest_error", [](Manifest& m) {
    m.tables[0].ranks[0].largest_error = std::numeric_limits<float>::infinity();
  });
  expect_refused("erased is missing", [](Manifest& m) { m.tables[0].ranks[0].erased.reset(); });
  expect_refused("folds", [](Manifest& m) { m.folds = m.parent; });
}

TEST(Manifest, ARanksEntryComesBack) {
  for (const bool is_delta : {false, true}) {
    const Manifest manifest = Specimen(is_delta);
    for (const RankEntry& entry : manifest.tables[0].ranks) {
      EXPECT_TRUE(test::Must(ParseRankEntry(SerializeRankEntry(entry))) == entry);
    }
  }
  const std::string entry = SerializeRankEntry(Specimen(false).tables[0].ranks[0]);
  for (const std::string& bytes : {std::string(), std::string("x"), entry.substr(0, entry.size() - 1)})
    EXPECT_EQ(ParseRankEntry(bytes).status().code(), StatusCode::kFailedPrecondition) << bytes;
}

TEST(Manifest, KnowsWhatAnIdIs) {
  for (const std::string id : {"a", "Z-9_", "000000000012-0123456789abcdef", "_"})
    EXPECT_TRUE(IsCheckpointId(id));
  EXPECT_TRUE(IsCheckpointId(std::string(64, '9')));
  for (const std::string id : {"", ".", "..", "a.b", "-a", "a/b", "a b", "a\n", "\xc3\xa4"})
    EXPECT_FALSE(IsCheckpointId(id)) << id;
  EXPECT_FALSE(IsCheckpointId(std::string(65, '9')));
  EXPECT_FALSE(IsCheckpointId(std::string("a\0b", 3)));
}

TEST(Manifest, KnowsWhatAServersIdSays) {
  const CheckpointOrigin origin{.round = 12, .instance = 0x0123456789abcdef};
  EXPECT_EQ(CheckpointId(origin), "000000000012-0123456789abcdef");
  EXPECT_EQ(OriginOf("000000000012-0123456789abcdef"), origin);
  EXPECT_EQ(OriginOf("000000000012-0123456789abcdef-folded"), origin);
  const CheckpointOrigin late{.round = 1'234'567'890'123, .instance = 1};
  EXPECT_EQ(OriginOf(CheckpointId(late)), late);
  for (const std::string id :
       {"", "a", "12", "12-0123456789abcdef", "0000000000012-0123456789abcdef", "000000000012",
        "000000000012-", "000000000012-0123456789abcde", "000000000012-0123456789ABCDEF",
        "000000000012-0123456789abcdef0", "000000000012_0123456789abcdef", "a00000000012-0123456789abcdef",
        "99999999999999999999999-0123456789abcdef", "-00000000012-0123456789abcdef"})
    EXPECT_EQ(OriginOf(id), std::nullopt) << id;
}

TEST(Manifest, FindsTablesById) {
  const Manifest manifest = Specimen(false);
  EXPECT_EQ(manifest.Find(TableId{9}), &manifest.tables[1]);
  for (const std::uint32_t id : {0U, 2U, 4U, 10U}) EXPECT_EQ(manifest.Find(TableId{id}), nullptr);
}

}  // namespace
}  // namespace slotwise
