// Tests the C interface's calls, callbacks, ends and refusals, against a server that can fail.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "slotwise/slotwise.h"
#include "tests/client/c_program.h"
#include "tests/client/fake_server.h"
#include "tests/rpc/messages.h"

namespace slotwise {
namespace {

// Frees what a test holds.
struct Free {
  void operator()(slotwise_call* call) const { slotwise_call_free(call); }
  void operator()(slotwise_client* client) const { slotwise_client_free(client); }
  void operator()(slotwise_queue* queue) const { slotwise_queue_free(queue); }
  void operator()(slotwise_rows* rows) const { slotwise_rows_free(rows); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

Owned<slotwise_client> Connect(const FakeServer& server, std::int64_t timeout_ms = 10'000,
                               std::int32_t data_type = SLOTWISE_FLOAT32) {
  const char* address = server.addresses()[0].c_str();
  slotwise_client_options options{};
  options.timeout_ms = timeout_ms;
  options.data_type = data_type;
  const Owned<slotwise_call> call(slotwise_connect(&address, 1, &options, nullptr));
  EXPECT_EQ(slotwise_call_wait(call.get(), -1), SLOTWISE_OK) << slotwise_call_message(call.get());
  Owned<slotwise_client> client(slotwise_call_client(call.get()));
  EXPECT_NE(client, nullptr);
  EXPECT_EQ(slotwise_call_client(call.get()), nullptr);
  return client;
}

// A lookup of the fake server's table, whose rows are (key, -key).
class Lookup {
 public:
  explicit Lookup(std::vector<std::uint64_t> keys) : keys_(std::move(keys)), values_(keys_.size() * 2) {
    batch_.table = "ads";
    batch_.keys = keys_.data();
    batch_.keys_count = keys_.size();
    batch_.values = values_.data();
    batch_.values_count = values_.size();
  }

  slotwise_batch& batch() { return batch_; }
  const std::vector<float>& values() const { return values_; }
  Owned<slotwise_call> Start(slotwise_client* client, const slotwise_call_options* options = nullptr) {
    return Owned<slotwise_call>(
        slotwise_lookup(client, &batch_, 1, SLOTWISE_TRAIN, nullptr, nullptr, options));
  }

 private:
  std::vector<std::uint64_t> keys_;
  std::vector<float> values_;
  slotwise_batch batch_{};
};

constexpr const char* kAds = R"({"table": "ads"})";

Owned<slotwise_call> Ask(const Owned<slotwise_client>& client, const char* method, const char* request,
                         const slotwise_call_options* options = nullptr) {
  return Owned<slotwise_call>(slotwise_ask(client.get(), method, request, -1, options));
}

std::int32_t End(const Owned<slotwise_call>& call) { return slotwise_call_wait(call.get(), -1); }
std::string MessageOf(const Owned<slotwise_call>& call) { return slotwise_call_message(call.get()); }

// A client of a server that can fail.
class CApi : public testing::Test {
 protected:
  // Pushes the batch, and returns what the server was sent.
  v1::PushRequest Pushed(const slotwise_looked_up* looked_up = nullptr, const float* rate = nullptr) {
    const Owned<slotwise_call> call(
        slotwise_push(client_.get(), &batch_.batch(), 1, looked_up, rate, nullptr, nullptr, nullptr));
    EXPECT_EQ(End(call), SLOTWISE_OK) << MessageOf(call);
    return server_.pushes().back().request;
  }

  FakeServer server_;
  Owned<slotwise_client> client_ = Connect(server_);
  Lookup batch_{{3}};
};

TEST(CApiAlone, IsC) {
  const FakeServer server;
  const std::array<std::uint64_t, 2> keys{3, 5};
  std::array<float, 4> values{};
  std::array<char, 200> message{};
  EXPECT_EQ(LookUpInC(server.addresses()[0].c_str(), keys.data(), 2, values.data(), 4, message.data(), 200),
            0)
      << message.data();
  EXPECT_EQ(values, (std::array<float, 4>{3, -3, 5, -5}));
  EXPECT_EQ(LookUpInC(server.addresses()[0].c_str(), keys.data(), 2, values.data(), 3, message.data(), 200),
            SLOTWISE_INVALID_ARGUMENT);
  EXPECT_STREQ(message.data(), "out has 3 floats: must have 4 (2 samples of 2)");
  EXPECT_EQ(slotwise_abi(), SLOTWISE_ABI);
  EXPECT_STRNE(slotwise_version(), "");
}

TEST(CApiAlone, HashesTextsAsXxh3Does) {
  const std::string_view bytes = "aabc";  // "", "a" and "abc"
  const std::array<std::uint64_t, 3> ends{0, 1, 4};
  std::array<std::uint64_t, 3> keys{};
  slotwise_hash_ids(bytes.data(), ends.data(), ends.size(), 0, keys.data());
  EXPECT_EQ(keys, (std::array<std::uint64_t, 3>{0x2d06800538d394c2, 0xe6c632b61e964e1f, 0x78af5f94892f3950}));
  slotwise_hash_ids(bytes.data(), ends.data(), 2, 1, keys.data());
  EXPECT_NE(keys[1], 0xe6c632b61e964e1f);
  EXPECT_EQ(keys[2], 0x78af5f94892f3950);
}

TEST(CApiAlone, ConnectingToNoServerEndsInTimeOrWhenItIsCancelled) {
  const char* no_server = "127.0.0.1:1";
  slotwise_client_options options{};
  options.timeout_ms = 300;
  const Owned<slotwise_call> late(slotwise_connect(&no_server, 1, &options, nullptr));
  EXPECT_EQ(End(late), SLOTWISE_UNAVAILABLE);
  EXPECT_NE(MessageOf(late).find("cannot connect: no answer from 127.0.0.1:1 within 0.3 s"),
            std::string::npos);

  options.timeout_ms = 60'000;
  const Owned<slotwise_call> cancelled(slotwise_connect(&no_server, 1, &options, nullptr));
  EXPECT_EQ(slotwise_call_wait(cancelled.get(), 10), SLOTWISE_RUNNING);
  slotwise_call_cancel(cancelled.get());
  EXPECT_EQ(End(cancelled), SLOTWISE_CANCELLED);
  // Freeing a call that runs ends it.
  Owned<slotwise_call>(slotwise_connect(&no_server, 1, &options, nullptr)).reset();
}

TEST_F(CApi, RefusesOptionsByName) {
  const char* address = server_.addresses()[0].c_str();
  slotwise_client_options too_short{};
  too_short.timeout_ms = -1;
  slotwise_client_options no_type{};
  no_type.data_type = 9;
  for (const auto& [wrong, word] :
       {std::pair(too_short, "timeout_ms"), std::pair(no_type, "data_type is 9")}) {
    const Owned<slotwise_call> call(slotwise_connect(&address, 1, &wrong, nullptr));
    EXPECT_EQ(End(call), SLOTWISE_INVALID_ARGUMENT);
    EXPECT_NE(MessageOf(call).find(word), std::string::npos) << MessageOf(call);
  }
  const Owned<slotwise_call> nowhere(slotwise_connect(nullptr, 0, nullptr, nullptr));
  EXPECT_EQ(End(nowhere), SLOTWISE_INVALID_ARGUMENT);

  Lookup lookup({1});
  slotwise_call_options options{};
  options.timeout_ms = -5;
  EXPECT_EQ(End(lookup.Start(client_.get(), &options)), SLOTWISE_INVALID_ARGUMENT);
  options = {};
  options.has_data_type = 1;
  options.data_type = -1;
  EXPECT_EQ(End(lookup.Start(client_.get(), &options)), SLOTWISE_INVALID_ARGUMENT);
  const Owned<slotwise_call> mode(
      slotwise_lookup(client_.get(), &lookup.batch(), 1, 7, nullptr, nullptr, nullptr));
  EXPECT_EQ(End(mode), SLOTWISE_INVALID_ARGUMENT);
  const auto json = Ask(client_, "CreateTable", R"({"options": {"dim": -1}})");
  EXPECT_EQ(End(json), SLOTWISE_INVALID_ARGUMENT);
  EXPECT_NE(MessageOf(json).find("dim"), std::string::npos) << MessageOf(json);
}

TEST(CApiAlone, FieldsHaveTheirNamesIn01) {
  slotwise_client_options options{};
  options.door = SLOTWISE_DOOR_SHM;
  EXPECT_EQ(options.transport, SLOTWISE_TRANSPORT_SHM);
  slotwise_looked_up state{};
  state.lineage = 9;
  EXPECT_EQ(state.generation, 9U);
}

TEST_F(CApi, AsksAnyMethodOfTheControlPathByItsName) {
  slotwise_table table{};
  EXPECT_EQ(slotwise_client_table(client_.get(), "ads", &table), 0) << "it was not used yet";
  const auto described = Ask(client_, "DescribeTable", kAds);
  EXPECT_EQ(End(described), SLOTWISE_OK) << MessageOf(described);
  const std::string json = slotwise_call_json(described.get());
  EXPECT_NE(json.find(R"("name":"ads")"), std::string::npos) << json;
  ASSERT_EQ(slotwise_client_table(client_.get(), "ads", &table), 1);
  EXPECT_EQ(table.dim, 2U);
  EXPECT_EQ(table.slots, 1U);
  EXPECT_EQ(table.pools, 1);
  slotwise_client_forget_table(client_.get(), "ads");
  EXPECT_EQ(slotwise_client_table(client_.get(), "ads", &table), 0);

  const Owned<slotwise_call> of_one_rank(slotwise_ask(client_.get(), "GetTopology", "{}", 1, nullptr));
  EXPECT_EQ(End(of_one_rank), SLOTWISE_OK) << MessageOf(of_one_rank);
  const Owned<slotwise_call> of_none(slotwise_ask(client_.get(), "GetTopology", "{}", 2, nullptr));
  EXPECT_EQ(End(of_none), SLOTWISE_INVALID_ARGUMENT);
  EXPECT_EQ(MessageOf(of_none), "rank is 2: the server has 2");
  EXPECT_STREQ(slotwise_call_reason(of_none.get()), "INVALID_VALUE");
  for (const char* method : {"Sing", "", "Admin/DescribeTable", "Lookup"}) {
    const auto call = Ask(client_, method, "{}");
    EXPECT_EQ(End(call), SLOTWISE_INVALID_ARGUMENT);
    EXPECT_EQ(MessageOf(call),
              "method is \"" + std::string(method) + "\", which service slotwise.v1.Admin does not have");
  }
  for (const char* request : {"", "[]", R"({"no_such_field": 1})", R"({"table": 1.5})"}) {
    const auto call = Ask(client_, "DescribeTable", request);
    EXPECT_EQ(End(call), SLOTWISE_INVALID_ARGUMENT) << request;
    EXPECT_NE(MessageOf(call).find("slotwise.v1.DescribeTableRequest"), std::string::npos) << MessageOf(call);
  }
}

TEST_F(CApi, NarrowsOffsetsOrSaysWhichOneIsWrong) {
  Lookup lookup({3, 5});
  const auto with = [&](std::vector<std::int64_t> offsets) {
    lookup.batch().offsets = offsets.data();
    lookup.batch().offsets_count = offsets.size();
    lookup.batch().offsets_type = SLOTWISE_INT64;
    const auto call = lookup.Start(client_.get());
    return std::pair(End(call), MessageOf(call));
  };
  EXPECT_EQ(with({0, 1, 2}), std::pair(std::int32_t{SLOTWISE_OK}, std::string()));
  EXPECT_EQ(lookup.values(), (std::vector<float>{3, -3, 5, -5}));
  EXPECT_EQ(with({0, -1, 2}).second, "offsets[1] is -1: must be 0 to the number of keys, 2");
  EXPECT_EQ(with({0, std::int64_t{1} << 32, 2}).second,
            "offsets[1] is 4294967296: must be 0 to the number of keys, 2");
  EXPECT_EQ(with({0, 2, 1}).first, SLOTWISE_INVALID_ARGUMENT);
  const std::uint32_t none = 0;
  lookup.batch().offsets = &none;
  lookup.batch().offsets_count = 0;
  lookup.batch().offsets_type = SLOTWISE_UINT32;
  EXPECT_EQ(End(lookup.Start(client_.get())), SLOTWISE_INVALID_ARGUMENT);
}

TEST_F(CApi, CallsBackOnceAndTheCallbackMayFreeItsCall) {
  struct Ends {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::int32_t> codes;
  } ends;
  slotwise_call_options options{};
  options.user = &ends;
  options.done = [](void* user, slotwise_call* call) {
    const std::int32_t code = slotwise_call_wait(call, 0);
    slotwise_call_free(call);
    Ends& told = *static_cast<Ends*>(user);
    const std::lock_guard lock(told.mutex);
    told.codes.push_back(code);
    told.changed.notify_all();
  };
  std::vector<Lookup> lookups;
  for (std::uint64_t i = 0; i < 100; ++i) lookups.emplace_back(std::vector<std::uint64_t>{i});
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    if (i % 2 == 1) lookups[i].batch().values_count = 1;
    static_cast<void>(lookups[i].Start(client_.get(), &options).release());
    if (i % 2 == 1) static_cast<void>(Ask(client_, "Digest", kAds, &options).release());  // in its own thread
  }
  std::unique_lock lock(ends.mutex);
  ends.changed.wait(lock, [&] { return ends.codes.size() == 150; });
  EXPECT_EQ(std::ranges::count(ends.codes, SLOTWISE_INVALID_ARGUMENT), 50);
}

TEST_F(CApi, FreeingACallWaitsForItsCallback) {
  struct Told {
    std::promise<void> began;
    std::atomic<bool> freed = false;
    std::atomic<bool> ended = false;
  } told;
  slotwise_call_options options{};
  options.user = &told;
  options.done = [](void* user, slotwise_call*) {
    Told& here = *static_cast<Told*>(user);
    here.began.set_value();
    const auto enough = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (!here.freed && std::chrono::steady_clock::now() < enough) std::this_thread::yield();
    here.ended = true;
    here.ended.notify_all();
  };
  Lookup lookup({1});
  auto call = lookup.Start(client_.get(), &options);
  told.began.get_future().wait();
  call.reset();
  EXPECT_TRUE(told.ended);
  told.freed = true;
  told.ended.wait(false);
}

TEST_F(CApi, QueuesGiveEachCallOnce) {
  const Owned<slotwise_queue> queue(slotwise_queue_new());
  EXPECT_EQ(slotwise_queue_take(queue.get(), 0), nullptr);
  slotwise_call_options options{};
  options.done = slotwise_queue_post;
  options.user = queue.get();
  std::vector<Lookup> lookups;
  for (std::uint64_t i = 0; i < 20; ++i) lookups.emplace_back(std::vector<std::uint64_t>{i});
  for (Lookup& lookup : lookups) static_cast<void>(lookup.Start(client_.get(), &options).release());
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    const Owned<slotwise_call> call(slotwise_queue_take(queue.get(), -1));
    EXPECT_EQ(End(call), SLOTWISE_OK);
  }
  EXPECT_EQ(slotwise_queue_take(queue.get(), 0), nullptr);
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    EXPECT_EQ(lookups[i].values()[0], static_cast<float>(i));
  }
}

TEST_F(CApi, ACancelledCallLeavesItsArraysAlone) {
  server_.before = server_.HangIn("Lookup");
  auto lookup = std::make_unique<Lookup>(std::vector<std::uint64_t>{1});
  auto call = lookup->Start(client_.get());
  server_.AwaitCalls("Lookup", 1);
  EXPECT_EQ(slotwise_call_wait(call.get(), 1), SLOTWISE_RUNNING);
  slotwise_call_cancel(call.get());
  EXPECT_EQ(End(call), SLOTWISE_CANCELLED);
  EXPECT_EQ(MessageOf(call), "the caller cancelled the call");
  lookup.reset();  // the address sanitizer would see a late write
  server_.Release();
}

TEST_F(CApi, AClosedClientRefusesAndItsRowsEnd) {
  server_.before = server_.HangIn("Lookup");
  Lookup lookup({1});
  const auto call = lookup.Start(client_.get());
  server_.AwaitCalls("Lookup", 1);
  const Owned<slotwise_rows> rows(slotwise_export(client_.get(), "ads", 0, nullptr, 0, nullptr));
  slotwise_client_close(client_.get());
  slotwise_client_close(client_.get());
  EXPECT_EQ(End(call), SLOTWISE_FAILED_PRECONDITION);
  EXPECT_EQ(MessageOf(call), "the client is closed");
  EXPECT_EQ(End(lookup.Start(client_.get())), SLOTWISE_FAILED_PRECONDITION);
  EXPECT_EQ(End(Ask(client_, "Digest", kAds)), SLOTWISE_FAILED_PRECONDITION);
  client_.reset();
  slotwise_rows_view view{};
  EXPECT_NE(slotwise_rows_next(rows.get(), -1, &view), SLOTWISE_OK);
  EXPECT_STRNE(slotwise_rows_message(rows.get()), "");
  server_.Release();
}

TEST_F(CApi, ACallsTimeoutIsItsOwn) {
  server_.before = server_.HangIn("Lookup");
  client_ = Connect(server_, 60'000);
  Lookup lookup({1});
  slotwise_call_options options{};
  options.timeout_ms = 200;
  const auto call = lookup.Start(client_.get(), &options);
  EXPECT_EQ(End(call), SLOTWISE_DEADLINE_EXCEEDED);
  EXPECT_NE(MessageOf(call).find("within 0.2 s"), std::string::npos) << MessageOf(call);
  server_.Release();
}

TEST(CApiAlone, AnExportsTimeoutIsItsOwn) {
  FakeServer server(1);
  const auto client = Connect(server, 60'000);
  server.StopRank(0);
  slotwise_call_options options{};
  options.timeout_ms = 300;
  const Owned<slotwise_rows> rows(slotwise_export(client.get(), "ads", 0, nullptr, 0, &options));
  slotwise_rows_view view{};
  EXPECT_NE(slotwise_rows_next(rows.get(), -1, &view), SLOTWISE_OK);
  const std::string message = slotwise_rows_message(rows.get());
  EXPECT_NE(message.find("within 0.3 s"), std::string::npos) << message;
}

TEST_F(CApi, CancellingACallThatHasEndedDoesNothing) {
  const auto call = batch_.Start(client_.get());
  EXPECT_EQ(End(call), SLOTWISE_OK);
  slotwise_call_cancel(call.get());
  EXPECT_EQ(End(call), SLOTWISE_OK);
  EXPECT_EQ(MessageOf(call), "");
}

TEST(CApiAlone, SendsWeightsAndTheClientsDataTypeUnlessACallHasItsOwn) {
  FakeServer server;
  const auto client = Connect(server, 10'000, SLOTWISE_FLOAT16);
  const std::array<float, 2> weights{2, 0.5F};
  Lookup lookup({3, 5});
  lookup.batch().weights = weights.data();
  slotwise_call_options options{};
  options.timeout_ms = 5000;
  End(lookup.Start(client.get(), &options));  // this server answers float32 alone
  options.has_data_type = 1;
  options.data_type = SLOTWISE_FLOAT32;
  EXPECT_EQ(End(lookup.Start(client.get(), &options)), SLOTWISE_OK);
  const auto lookups = server.lookups();
  ASSERT_EQ(lookups.size(), 2u);
  EXPECT_EQ(lookups[0].request.data_type(), v1::DATA_TYPE_FLOAT16);
  EXPECT_EQ(lookups[1].request.data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(lookups[0].request.weights(), BytesOf<float>({2, 0.5F}));
}

TEST_F(CApi, APushWithoutAStepIsTheNextOfTheClientsSession) {
  EXPECT_EQ(Pushed().step().number(), 1u);
  EXPECT_EQ(Pushed().step().number(), 2u);
  EXPECT_EQ(server_.pushes().size(), 2u);
}

TEST_F(CApi, APushBringsARateForEachTableThatHasOne) {
  EXPECT_FALSE(Pushed().has_learning_rate());
  const float none = std::nanf("");
  EXPECT_FALSE(Pushed(nullptr, &none).has_learning_rate());
  const float zero = 0;
  EXPECT_TRUE(Pushed(nullptr, &zero).has_learning_rate());
  const float rate = 0.25F;
  EXPECT_EQ(Pushed(nullptr, &rate).learning_rate(), 0.25F);
}

TEST_F(CApi, APushSaysWhatItsRowsWereReadOf) {
  EXPECT_FALSE(Pushed().has_looked_up()) << "nothing was looked up yet";

  std::uint64_t step = 40;
  server_.Spoil([&step](v1::LookupReply& reply) {
    reply.set_lineage(7);
    reply.set_table_step(++step);
  });
  slotwise_looked_up state{};
  for (const std::uint64_t expected : {41U, 42U}) {
    EXPECT_EQ(End(batch_.Start(client_.get())), SLOTWISE_OK);
    slotwise_client_looked_up(client_.get(), "ads", &state);
    EXPECT_EQ(state.generation, 7U);
    EXPECT_EQ(state.table_step, expected);
    EXPECT_EQ(Pushed().looked_up().table_step(), expected) << "of the latest lookup";
    EXPECT_EQ(Pushed().looked_up().lineage(), 7U);
  }
  const slotwise_looked_up own{.generation = 6, .table_step = 30};
  EXPECT_EQ(Pushed(&own).looked_up().lineage(), 6U);
  EXPECT_EQ(Pushed(&own).looked_up().table_step(), 30U);
  const slotwise_looked_up unknown{};
  EXPECT_EQ(Pushed(&unknown).looked_up().table_step(), 42U);

  slotwise_client_looked_up(client_.get(), "another", &state);
  EXPECT_EQ(state.generation, 0U);
  slotwise_client_looked_up(client_.get(), nullptr, &state);
  EXPECT_EQ(state.table_step, 0U);
}

}  // namespace
}  // namespace slotwise
