// Tests the client against the real services of one rank, in this process.
#include "slotwise/client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/rpc/rpc_server.h"
#include "tests/client/later.h"
#include "tests/support/status.h"
#include "tests/support/test_secret.h"

namespace slotwise {
namespace {

class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    auto server = RpcServer::Start({}, *engine_);
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    run_ = std::thread([this] { engine_->Run(); });
    const std::string address = "127.0.0.1:" + std::to_string(server_->port());
    server_->Open({.version = "1.2.3", .ranks = {{address, "cpu"}}, .rank = Rank{0}});
    client_ = std::make_unique<Client>(Another());
  }

  // Connects another client to the server.
  Client Another(const ClientOptions& options = {}) const {
    auto client = Client::Connect({"127.0.0.1:" + std::to_string(server_->port())}, options);
    EXPECT_TRUE(client.ok()) << client.status().message();
    return std::move(*client);
  }

  ~ClientTest() override {
    client_.reset();
    engine_->RequestStop();
    run_.join();
  }

  // Rows begin as 1, and SGD has rate 0.5.
  TableOptions Ads() {
    TableOptions options;
    options.name = TableName("ads");
    options.dim = 2;
    options.slots = 2;
    options.optimizer.learning_rate = 0.5F;
    options.initializer.low = options.initializer.high = 1.0F;
    return options;
  }

  std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  Exchanges exchanges_ = Exchanges::MakeSolo(*device_);
  std::unique_ptr<Engine> engine_ =
      std::make_unique<Engine>(*device_, *collective_, exchanges_, test::kTestSecret, EngineOptions{});
  std::unique_ptr<RpcServer> server_;
  std::thread run_;
  std::unique_ptr<Client> client_;

  // Two samples of two bags: {5}, {}, {7, 5}, {0}.
  const std::vector<Key> keys_{Key{5}, Key{7}, Key{5}, Key{0}};
  const std::vector<std::uint32_t> offsets_{0, 1, 1, 3, 4};
  const BatchView batch_{keys_, offsets_};
};

// The server has the table already.
class AdsTest : public ClientTest {
 protected:
  AdsTest() { EXPECT_TRUE(client_->CreateTable(Ads()).ok()); }

  // Looks up the batch.
  std::vector<float> Look(LookupMode mode = LookupMode::kTrain) {
    std::vector<float> out(8);
    const Status status = client_->Lookup("ads", batch_, mode, out);
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }

  const std::vector<float> ones_ = std::vector<float>(8, 1.0F);  // gradients
};

TEST_F(ClientTest, MakesDescribesAndDropsTables) {
  const auto made = client_->CreateTable(Ads());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(made->created);
  EXPECT_EQ(made->options, Ads());
  EXPECT_FALSE(client_->CreateTable(Ads())->created);
  TableOptions other = Ads();
  other.dim = 3;
  EXPECT_EQ(client_->CreateTable(other).status().code(), StatusCode::kAlreadyExists);
  other.dim = 0;
  EXPECT_EQ(client_->CreateTable(other).status().code(), StatusCode::kInvalidArgument);
  other = Ads();
  other.optimizer.kind = static_cast<OptimizerKind>(200);  // no message can have it
  test::ExpectStatus(client_->CreateTable(other).status(), StatusCode::kInvalidArgument,
                     "optimizer.kind is 200");

  const auto tables = client_->ListTables();
  ASSERT_TRUE(tables.ok());
  EXPECT_EQ(*tables, std::vector<TableOptions>{Ads()});
  const auto description = client_->DescribeTable("ads");
  ASSERT_TRUE(description.ok());
  EXPECT_EQ(description->options, Ads());
  EXPECT_EQ(description->rows(), 0u);
  EXPECT_EQ(description->shards.size(), 1u);
  EXPECT_EQ(description->rounds, RoundsDescription{}) << "nothing travels on one rank";

  EXPECT_TRUE(client_->DropTable("ads").ok());
  EXPECT_EQ(client_->DropTable("ads").code(), StatusCode::kNotFound);
  EXPECT_EQ(client_->DescribeTable("ads").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client_->Digest("ads").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client_->Topology()->version, "1.2.3");
}

TEST_F(AdsTest, TrainsATable) {
  EXPECT_EQ(Look(LookupMode::kEval), std::vector<float>(8, 0.0F))
      << "nothing is there, and evaluation puts nothing there";
  EXPECT_EQ(Look(), (std::vector<float>{1, 1, 0, 0, 2, 2, 1, 1}));

  const std::vector<float> gradients{1, 2, 9, 9, 3, 4, 5, 6};
  const auto step = client_->Push("ads", batch_, gradients);
  ASSERT_TRUE(step.ok()) << step.status().message();
  EXPECT_EQ(*step, 1u);
  // The gradients were (1, 2) and (3, 4) for row 5, (3, 4) for row 7, and (5, 6) for row 0.
  EXPECT_EQ(Look(LookupMode::kEval), (std::vector<float>{-1, -2, 0, 0, -1.5F, -3, -1.5F, -2}));
  const auto digest = client_->Digest("ads");
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(digest->digest.size(), 32u);
  EXPECT_EQ(digest->rows, 3u);
  EXPECT_EQ(digest->steps, 1u);
}

TEST_F(AdsTest, AppliesAStepThatIsPushedAgainOnce) {
  const Step step = client_->session().Next();
  ASSERT_TRUE(client_->Push("ads", batch_, ones_, step).ok());
  const auto before = client_->Digest("ads");
  const auto again = client_->Push("ads", batch_, ones_, step);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, 1u);
  EXPECT_EQ(*client_->Digest("ads"), *before);
}

TEST_F(AdsTest, SaysWhereATrainerThatIsStartedAgainGoesOn) {
  Session session({.id = 77, .epoch = 1});
  ASSERT_TRUE(client_->Push("ads", batch_, ones_, session.Next()).ok());
  ASSERT_TRUE(client_->Push("ads", batch_, ones_, session.Next()).ok());
  const auto known = client_->DescribeSession(77, 1);
  ASSERT_TRUE(known.ok()) << known.status().message();
  EXPECT_TRUE(known->known);
  EXPECT_EQ(known->last_step, 2u);
  ASSERT_EQ(known->tables.size(), 1u);
  EXPECT_EQ(known->tables[0].table, "ads");
  Session again({.id = 77, .epoch = 1, .last = known->last_step});
  EXPECT_EQ(*client_->Push("ads", batch_, ones_, again.Next()), 3u);
  const auto other = client_->DescribeSession(78, 1);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->known || other->may_be_forgotten);
  EXPECT_EQ(other->last_step, 0u);
}

TEST_F(AdsTest, SumsTheSharesOfSeveralTrainers) {
  Session first({.id = 77, .trainer = 0, .trainers = 2, .parts = 3});
  Session second({.id = 77, .trainer = 1, .trainers = 2, .parts = 3});
  auto one = PushLater(*client_, "ads", batch_, ones_, first.Next());
  auto two = PushLater(*client_, "ads", batch_, ones_, second.Next());
  EXPECT_EQ(*one.get(), 1u);
  EXPECT_EQ(*two.get(), 1u);
  EXPECT_EQ(Look(LookupMode::kEval)[0], 1 - 0.5F * 4) << "row 5 is in two bags of each trainer";
}

TEST_F(AdsTest, WeighsKeysAndTakesBatchesOfSingleKeys) {
  const std::vector<float> weights{2, 3, 4, 5};
  std::vector<float> out(8);
  ASSERT_TRUE(client_->Lookup("ads", {keys_, offsets_, weights}, LookupMode::kTrain, out).ok());
  EXPECT_EQ(out, (std::vector<float>{2, 2, 0, 0, 7, 7, 5, 5}));

  TableOptions single = Ads();
  single.name = TableName("single");
  single.slots = 1;
  single.combiner = Combiner::kNone;
  ASSERT_TRUE(client_->CreateTable(single).ok());
  ASSERT_TRUE(client_->Lookup("single", {keys_, {}}, LookupMode::kTrain, out).ok());
  EXPECT_EQ(out, std::vector<float>(8, 1.0F));
}

TEST_F(AdsTest, LetsValuesTravelInHalfTheBytes) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    Client half = Another({.data_type = type});
    std::vector<float> rounded(8);
    ASSERT_TRUE(half.Push("ads", batch_, std::vector<float>(8, 0.3F)).ok());
    const std::vector<float> exact = Look(LookupMode::kEval);
    ASSERT_TRUE(half.Lookup("ads", batch_, LookupMode::kEval, rounded).ok());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(rounded[i], type == DataType::kFloat16 ? FromFloat16(ToFloat16(exact[i]))
                                                       : FromBFloat16(ToBFloat16(exact[i])));
    }
  }
}

TEST_F(AdsTest, ServesSeveralTablesInOneCallOfSeveralParts) {
  TableOptions words = Ads();
  words.name = TableName("words");
  words.dim = 3;
  words.slots = 1;
  ASSERT_TRUE(client_->CreateTable(words).ok());
  const std::vector<Key> word_keys{Key{1}, Key{2}, Key{3}};
  std::vector<float> gradients(8);
  std::vector<float> word_gradients(9);
  std::iota(gradients.begin(), gradients.end(), 1.0F);
  std::iota(word_gradients.begin(), word_gradients.end(), 1.0F);
  const std::vector<TablePush> pushes{{"ads", batch_, gradients}, {"words", {word_keys, {}}, word_gradients}};
  const auto steps = client_->Push(pushes, Step{.session = 1, .number = 1, .parts = 2});
  ASSERT_TRUE(steps.ok()) << steps.status().message();
  EXPECT_EQ(*steps, (std::vector<std::uint64_t>{1, 1})) << "one for each table";

  std::vector<float> out(8);
  std::vector<float> word_out(9);
  const std::vector<TableLookup> lookups{{"ads", batch_, out}, {"words", {word_keys, {}}, word_out}};
  ASSERT_TRUE(client_->Lookup(lookups, LookupMode::kEval).ok());
  // Row 5 got (1, 2) and (5, 6), row 7 (5, 6), and row 0 (7, 8).
  EXPECT_EQ(out, (std::vector<float>{-2, -3, 0, 0, -3.5F, -5, -2.5F, -3}));
  for (std::size_t i = 0; i < word_out.size(); ++i) EXPECT_EQ(word_out[i], 1 - 0.5F * word_gradients[i]);

  // A table without samples has its part of the step, and is asked like the others.
  const std::vector<TablePush> few{{"ads", {}, {}}, {"words", {word_keys, {}}, word_gradients}};
  const auto second = client_->Push(few, Step{.session = 1, .number = 2});
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(*second, (std::vector<std::uint64_t>{2, 2}));
  // This client knows the table, which another has dropped.
  ASSERT_TRUE(Another().DropTable("words").ok());
  const std::vector<TableLookup> none{{"words", {}, {}}, {"words", {}, {}}};
  EXPECT_EQ(client_->Lookup(none, LookupMode::kEval).code(), StatusCode::kNotFound);
}

TEST_F(AdsTest, TheServerCountsTheStepsBetweenALookupAndItsPush) {
  Client other = Another();
  std::vector<float> out(8);
  const auto staleness = [this] { return engine_->Stats().tables.at(0).staleness; };
  ASSERT_TRUE(client_->Push("ads", batch_, ones_).ok());
  EXPECT_EQ(staleness(), StepsStats()) << "this client has looked nothing up";

  Look();
  ASSERT_TRUE(other.Lookup("ads", batch_, LookupMode::kTrain, out).ok());
  EXPECT_EQ(client_->LookedUp("ads").table_step, 1u);
  EXPECT_EQ(client_->LookedUp("ads").generation, client_->DescribeTable("ads")->generation);
  EXPECT_EQ(client_->LookedUp("other"), LookedUpState());
  ASSERT_TRUE(client_->Push("ads", batch_, ones_).ok());  // 0 steps late
  ASSERT_TRUE(client_->Push("ads", batch_, ones_).ok());  // 1
  ASSERT_TRUE(other.Push("ads", batch_, ones_).ok());     // 2
  // The caller knows better: this one is 3 steps late, though the client has looked up since.
  const LookedUpState first = client_->LookedUp("ads");
  Look();
  ASSERT_TRUE(client_->Push("ads", batch_, ones_, std::nullopt, {.looked_up = {first}}).ok());
  StepsStats expected{.sum = 6};
  expected.buckets = {1, 1, 1, 1};
  EXPECT_EQ(staleness(), expected);

  // Of a table that was made anew, nothing was looked up.
  ASSERT_TRUE(other.DropTable("ads").ok());
  ASSERT_TRUE(other.CreateTable(Ads()).ok());
  ASSERT_TRUE(other.Push("ads", batch_, ones_).ok());
  EXPECT_EQ(other.LookedUp("ads"), LookedUpState());
  ASSERT_TRUE(other.Push("ads", batch_, ones_, std::nullopt, {.looked_up = {first}}).ok());
  EXPECT_EQ(staleness(), StepsStats());
}

TEST_F(AdsTest, AStepAtARateOfItsOwnLeavesTheTablesRate) {
  const std::vector<float> before = Look();
  const float own = client_->DescribeTable("ads")->base_learning_rate;
  ASSERT_TRUE(client_->Push("ads", batch_, ones_, std::nullopt, {.learning_rates = {0.0F}}).ok());
  EXPECT_EQ(Look(), before) << "SGD at rate 0";
  ASSERT_TRUE(client_->Push("ads", batch_, ones_, std::nullopt, {.learning_rates = {std::nullopt}}).ok());
  const float once = Look()[0];
  const float moved = before[0] - once;
  EXPECT_GT(moved, 0);
  ASSERT_TRUE(client_->Push("ads", batch_, ones_, std::nullopt, {.learning_rates = {2 * own}}).ok());
  EXPECT_NEAR(once - Look()[0], 2 * moved, 1e-5F);
  EXPECT_EQ(client_->DescribeTable("ads")->base_learning_rate, own);
  const auto refused = client_->Push("ads", batch_, ones_, std::nullopt, {.learning_rates = {-1.0F}});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

class RepeatedKeysTest : public ClientTest {
 protected:
  RepeatedKeysTest() {
    whole_ = std::make_unique<Client>(Another({.send_each_key_once = false}));
    offsets_.resize(kKeys + 1);
    std::iota(offsets_.begin(), offsets_.end(), 0U);
    std::mt19937_64 random(1);
    std::vector<Key> distinct(kDistinct);
    for (Key& key : distinct) key = Key{random()};
    keys_ = distinct;
    while (keys_.size() < kKeys) keys_.push_back(distinct[random() % kDistinct]);
    std::ranges::shuffle(keys_, random);
  }
  ~RepeatedKeysTest() override { whole_.reset(); }

  TableOptions Table(std::string_view name, Combiner combiner, std::uint32_t slots) {
    TableOptions options;
    options.name = TableName(name);
    options.dim = kDim;
    options.slots = slots;
    options.combiner = combiner;
    return options;
  }
  // Returns the rank's counts once it has counted `more` more lookups, which it does after their answers.
  CallStats LookupsAfter(std::uint64_t more) {
    counted_ += more;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (;;) {
      const CallStats lookups = client_->Stats()->front().lookups;
      if (lookups.calls >= counted_ || std::chrono::steady_clock::now() > deadline) return lookups;
      std::this_thread::yield();
    }
  }

  static constexpr std::size_t kKeys = 6000;
  static constexpr std::uint64_t kDistinct = 505;
  static constexpr std::uint32_t kDim = 5;
  std::vector<Key> keys_;
  std::vector<std::uint32_t> offsets_;
  std::unique_ptr<Client> whole_;  // sends each key as often as it comes
  std::uint64_t counted_ = 0;
};

TEST_F(RepeatedKeysTest, ALookupHasTheSameBytesAndFewerOnTheWire) {
  struct Case {
    std::string_view table;
    Combiner combiner;
    std::uint32_t slots;
    bool has_offsets;
    std::uint64_t keys_sent;
  };
  for (const Case& c :
       {Case{"none", Combiner::kNone, 1, false, kDistinct}, Case{"mean", Combiner::kMean, 3, true, 507},
        Case{"sqrtn", Combiner::kSqrtn, 1, true, kDistinct}, Case{"sum", Combiner::kSum, 6, false, 510}}) {
    ASSERT_TRUE(client_->CreateTable(Table(c.table, c.combiner, c.slots)).ok());
    const BatchView batch{keys_, c.has_offsets ? std::span(offsets_) : std::span<std::uint32_t>()};
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      for (const LookupMode mode : {LookupMode::kEval, LookupMode::kTrain}) {
        std::vector<float> once(kKeys * kDim, 1);
        std::vector<float> whole(kKeys * kDim, 2);
        const CallStats before = LookupsAfter(0);
        ASSERT_TRUE(client_->Lookup(c.table, batch, mode, once, {.data_type = type}).ok());
        const CallStats between = LookupsAfter(1);
        EXPECT_EQ(client_->DescribeTable(c.table)->rows(),
                  mode == LookupMode::kTrain || type == DataType::kBFloat16 ? kDistinct : 0);
        ASSERT_TRUE(whole_->Lookup(c.table, batch, mode, whole, {.data_type = type}).ok());
        const CallStats after = LookupsAfter(1);
        EXPECT_EQ(std::memcmp(once.data(), whole.data(), once.size() * sizeof(float)), 0) << c.table;
        EXPECT_EQ(between.keys - before.keys, c.keys_sent) << c.table;
        EXPECT_EQ(between.samples - before.samples, c.keys_sent / c.slots);
        EXPECT_EQ(after.keys - between.keys, kKeys);
        const std::uint64_t values = kDim * BytesOf(type);
        EXPECT_LT(between.bytes_out - before.bytes_out, c.keys_sent * values + 200);
        EXPECT_GT(after.bytes_out - between.bytes_out, kKeys * values);
        EXPECT_LT(between.bytes_in - before.bytes_in, c.keys_sent * (8 + (c.has_offsets ? 4 : 0)) + 200);
      }
    }
  }
}

TEST_F(RepeatedKeysTest, LookupsOfSeveralTablesHaveTheSameBytes) {
  ASSERT_TRUE(client_->CreateTable(Table("one", Combiner::kNone, 1)).ok());
  ASSERT_TRUE(client_->CreateTable(Table("two", Combiner::kSum, 2)).ok());
  const std::vector<float> weights(kKeys, 0.5F);
  std::vector<std::vector<float>> once(3, std::vector<float>(kKeys * kDim));
  std::vector<std::vector<float>> whole = once;
  for (auto [client, out] : {std::pair(client_.get(), &once), std::pair(whole_.get(), &whole)}) {
    const CallStats before = LookupsAfter(0);
    const std::vector<TableLookup> lookups{{"one", {keys_, {}}, (*out)[0]},
                                           {"two", {keys_, offsets_}, (*out)[1]},
                                           {"two", {keys_, offsets_, weights}, (*out)[2]}};
    ASSERT_TRUE(client->Lookup(lookups, LookupMode::kTrain).ok());
    EXPECT_EQ(LookupsAfter(1).keys - before.keys,
              client == client_.get() ? kDistinct + 506 + kKeys : 3 * kKeys);
  }
  EXPECT_EQ(once, whole);
}

TEST_F(RepeatedKeysTest, APushIsOfAllKeys) {
  ASSERT_TRUE(client_->CreateTable(Table("one", Combiner::kNone, 1)).ok());
  ASSERT_TRUE(client_->CreateTable(Table("other", Combiner::kNone, 1)).ok());
  std::vector<float> gradients(kKeys * kDim);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = 1 / static_cast<float>(i + 1);
  ASSERT_TRUE(client_->Push("one", {keys_, {}}, gradients).ok());
  ASSERT_TRUE(whole_->Push("other", {keys_, {}}, gradients).ok());
  EXPECT_EQ(client_->Digest("one")->digest, client_->Digest("other")->digest);
}

TEST_F(RepeatedKeysTest, AFullTableRefusesItAlike) {
  TableOptions full = Table("full", Combiner::kNone, 1);
  full.max_rows = kDistinct - 1;
  ASSERT_TRUE(client_->CreateTable(full).ok());
  std::vector<float> out(kKeys * kDim);
  const Status once = client_->Lookup("full", {keys_, {}}, LookupMode::kTrain, out);
  const Status whole = whole_->Lookup("full", {keys_, {}}, LookupMode::kTrain, out);
  EXPECT_EQ(once.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(once.message(), whole.message());
  EXPECT_EQ(client_->DescribeTable("full")->rows(), 0u);
  const std::vector<float> short_out(kKeys);
  EXPECT_EQ(client_->Lookup("full", {keys_, {}}, LookupMode::kTrain, std::span(out).first(kKeys)).message(),
            "out has 6000 floats: must have 30000 (6000 samples of 5)");
}

TEST_F(AdsTest, SetsTheLearningRate) {
  EXPECT_TRUE(client_->SetLearningRate("ads", 0.125F).ok());
  EXPECT_EQ(client_->DescribeTable("ads")->learning_rate, 0.125F);
  EXPECT_EQ(client_->SetLearningRate("ads", -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->SetLearningRate("none", 1).code(), StatusCode::kNotFound);
}

TEST_F(ClientTest, ExportsImportsAndErasesRows) {
  TableOptions options = Ads();
  options.slots = 1;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.optimizer.epsilon = 1e-8F;
  ASSERT_TRUE(client_->CreateTable(options).ok());
  std::vector<Key> keys(50'000);
  std::vector<float> gradients(100'000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = Key{i * i};
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i % 7) - 3;
  ASSERT_TRUE(client_->Push("ads", {keys, {}}, gradients).ok());

  std::vector<Key> all_keys;
  std::vector<float> all_values;
  std::vector<float> all_state;
  const auto take_all = [&](Result<RowStream> rows) -> Status {
    if (!rows.ok()) return rows.status();
    for (;;) {
      const auto some = rows->Next();
      if (!some.ok()) return some.status();
      if (!*some) return {};
      all_keys.insert(all_keys.end(), (*some)->keys.begin(), (*some)->keys.end());
      all_values.insert(all_values.end(), (*some)->values.begin(), (*some)->values.end());
      all_state.insert(all_state.end(), (*some)->state.begin(), (*some)->state.end());
    }
  };
  Status status = take_all(client_->Export("ads", true));
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(all_keys.size(), keys.size());
  ASSERT_EQ(all_state.size(), keys.size() * 4);

  options.name = TableName("copy");
  ASSERT_TRUE(client_->CreateTable(options).ok());
  const auto given = client_->Import("copy", {all_keys, all_values, all_state}, 1);
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(*given, keys.size());
  EXPECT_EQ(client_->Digest("copy")->digest, client_->Digest("ads")->digest);
  EXPECT_EQ(client_->Digest("copy")->steps, 1u);

  const std::vector<Key> gone{keys[3], keys[4], Key{~std::uint64_t{0}}};
  EXPECT_EQ(*client_->Erase("copy", gone), 2u);
  EXPECT_EQ(client_->Digest("copy")->rows, keys.size() - 2);
  all_keys.clear();
  const std::vector<Key> asked{keys[3], keys[5], keys[5]};
  ASSERT_TRUE(take_all(client_->Export("copy", false, asked)).ok());
  EXPECT_EQ(all_keys, std::vector<Key>{keys[5]});
  ASSERT_TRUE(take_all(client_->Export("copy", false, std::span<const Key>())).ok());
  EXPECT_EQ(all_keys.size(), 1u);

  auto left_early = client_->Export("ads", true);
  ASSERT_TRUE(left_early.ok());
  ASSERT_TRUE(left_early->Next().ok());
  while (!left_early->Wait(std::chrono::milliseconds(10))) {
  }
  { const RowStream gone_now = std::move(*left_early); }
  EXPECT_EQ(take_all(client_->Export("none", false)).code(), StatusCode::kNotFound);
  EXPECT_EQ(client_->Erase("none", gone).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client_->Import("copy", {gone, all_values, {}}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->Import("copy", {gone, std::span(all_values).first(3), {}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(*client_->Import("copy", {}), 0u);
}

TEST_F(AdsTest, RefusesWhatDoesNotFitBeforeItIsSent) {
  std::vector<float> out(7);
  EXPECT_EQ(client_->Lookup("ads", batch_, LookupMode::kTrain, out).message(),
            "out has 7 floats: must have 8 (2 samples of 4)");
  EXPECT_EQ(client_->Push("ads", batch_, out).status().message(),
            "gradients has 7 floats: must have 8 (2 samples of 4)");
  EXPECT_EQ(client_->Push("ads", batch_, out, Step{.trainers = 2}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->Lookup("none", batch_, LookupMode::kTrain, out).code(), StatusCode::kNotFound);
  EXPECT_TRUE(client_->Lookup("ads", {}, LookupMode::kTrain, {}).ok());
  EXPECT_TRUE(client_->Push("ads", {}, {}).ok());
}

TEST_F(ClientTest, GivesLargeBatchesBackInOrder) {
  TableOptions options = Ads();
  options.name = TableName("wide");
  options.dim = 256;
  options.max_rows = 1 << 20;  // address space is reserved for all rows, and sanitizers have less of it
  options.slots = 1;
  options.initializer = {};
  ASSERT_TRUE(client_->CreateTable(options).ok());
  std::vector<Key> keys(20'000);  // 20 MiB, so many parts
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = Key{i * 7919 % 1000};
  std::vector<float> out(keys.size() * 256);
  ASSERT_TRUE(client_->Lookup("wide", {keys, {}}, LookupMode::kTrain, out).ok());
  std::vector<float> alone(256);
  for (const std::size_t i : {0, 1, 4321, 10'000, 19'999}) {
    ASSERT_TRUE(client_->Lookup("wide", {std::span(keys).subspan(i, 1), {}}, LookupMode::kEval, alone).ok());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.begin() + static_cast<std::ptrdiff_t>(i) * 256))
        << i;
  }
}

TEST_F(AdsTest, LearnsThatATableWasMadeAnew) {
  Client other = Another();
  ASSERT_TRUE(other.DropTable("ads").ok());
  TableOptions wider = Ads();
  wider.dim = 3;
  ASSERT_TRUE(other.CreateTable(wider).ok());
  std::vector<float> out(8);
  EXPECT_EQ(client_->Lookup("ads", batch_, LookupMode::kTrain, out).code(), StatusCode::kFailedPrecondition);
  out.resize(12);
  EXPECT_TRUE(client_->Lookup("ads", batch_, LookupMode::kTrain, out).ok());
}

TEST_F(AdsTest, ServesManyThreadsAndChainsOfCallbacks) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      std::vector<float> out(8);
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(client_->Lookup("ads", batch_, LookupMode::kTrain, out).ok());
        EXPECT_TRUE(client_->Push("ads", batch_, std::vector<float>(8, 0.0F)).ok());
      }
    });
  }
  std::vector<float> out(8);
  const TableLookup lookup{"ads", batch_, out};
  std::promise<int> chain;
  std::function<void(Status)> next = [&, left = 100](const Status& status) mutable {
    EXPECT_TRUE(status.ok()) << status.message();
    if (--left == 0) return chain.set_value(0);
    client_->LookupAsync({&lookup, 1}, LookupMode::kEval, std::ref(next));
  };
  client_->LookupAsync({&lookup, 1}, LookupMode::kEval, std::ref(next));
  chain.get_future().get();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client_->Digest("ads")->steps, 200u);
}

}  // namespace
}  // namespace slotwise
