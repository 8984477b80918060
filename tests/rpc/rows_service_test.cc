// Tests export, import, erase, several tables in one call, and the learning rate, through generated stubs
// over real gRPC.
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "server/engine/observer.h"
#include "server/engine/operations/lookup.h"
#include "tests/rpc/rpc_server_fixture.h"

namespace slotwise {
namespace {

template <class T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(values.data()));
  return values;
}

class RowsServiceTest : public RpcServerTest {
 protected:
  void SetUp() override { OpenWithAds(options_); }

  // Exports all rows, or those of `keys`. Returns each key's values.
  std::map<std::uint64_t, std::vector<float>> Export(const std::vector<std::uint64_t>& keys = {}) {
    v1::ExportRequest request;
    request.set_table("ads");
    request.set_keys(BytesOf(keys));
    grpc::ClientContext context;
    const auto stream = rows_->Export(&context, request);
    std::map<std::uint64_t, std::vector<float>> rows;
    v1::ExportReply reply;
    messages_ = 0;
    while (stream->Read(&reply)) {
      ++messages_;
      const auto some = Values<std::uint64_t>(reply.keys());
      const auto values = Values<float>(reply.values());
      for (std::size_t i = 0; i < some.size(); ++i) {
        rows[some[i]] = {values.begin() + static_cast<std::ptrdiff_t>(3 * i),
                         values.begin() + static_cast<std::ptrdiff_t>(3 * i + 3)};
      }
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return rows;
  }

  static v1::ImportRequest RowsOf(const std::vector<std::uint64_t>& keys, float value) {
    v1::ImportRequest message;
    message.set_table("ads");
    message.set_keys(BytesOf(keys));
    message.set_values(BytesOf(std::vector<float>(keys.size() * 3, value)));
    return message;
  }

  grpc::Status Import(const std::vector<v1::ImportRequest>& messages, v1::ImportReply& reply) {
    grpc::ClientContext context;
    const auto stream = rows_->Import(&context, &reply);
    for (const v1::ImportRequest& message : messages) {
      if (!stream->Write(message)) break;
    }
    stream->WritesDone();
    return stream->Finish();
  }

  // Imports what is right; returns how many rows that were.
  std::uint64_t MustImport(const std::vector<v1::ImportRequest>& messages) {
    v1::ImportReply reply;
    const grpc::Status status = Import(messages, reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.rows();
  }

  // 400,000 are more than an export's first messages hold.
  void ImportManyRows(std::size_t rows = 400'000) {
    std::vector<std::uint64_t> keys(rows);
    std::iota(keys.begin(), keys.end(), 0U);
    EXPECT_EQ(MustImport({RowsOf(keys, 0.5F)}), rows);
  }

  RpcOptions options_;
  int messages_ = 0;  // messages of the last export
};

class RowsServiceOfFewExportsTest : public RowsServiceTest {
 protected:
  RowsServiceOfFewExportsTest() { options_.max_queue_bytes = 12 << 20; }  // exports have a quarter
};

TEST_F(RowsServiceTest, WhatIsImportedComesOutAgain) {
  v1::ImportRequest second = RowsOf({3, 4}, 2.0F);
  second.clear_table();
  EXPECT_EQ(MustImport({RowsOf({1, 2, 3}, 1.0F), second}), 5u);
  const std::vector<float> ones(3, 1.0F);
  const std::vector<float> twos(3, 2.0F);
  EXPECT_EQ(Export(),
            (std::map<std::uint64_t, std::vector<float>>{{1, ones}, {2, ones}, {3, twos}, {4, twos}}));
  EXPECT_EQ(Export({4, 99, 1}), (std::map<std::uint64_t, std::vector<float>>{{1, ones}, {4, twos}}));
}

TEST_F(RowsServiceTest, ALargeTableComesInSeveralMessages) {
  ImportManyRows(200'000);
  EXPECT_EQ(Export().size(), 200'000u);
  EXPECT_EQ(messages_, 4);  // a row has 20 bytes, a message about 1 MiB
}

TEST_F(RowsServiceTest, TheFirstRefusedMessageEndsAnImport) {
  v1::ImportRequest bad = RowsOf({7}, 1.0F);
  bad.set_values("short");
  v1::ImportReply reply;
  const grpc::Status status = Import({RowsOf({1}, 1.0F), bad, RowsOf({2}, 1.0F)}, reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(Export().size(), 1u);
}

TEST_F(RowsServiceTest, AnImportOfNothingIsFine) {
  EXPECT_EQ(MustImport({}), 0u);
  EXPECT_TRUE(Export().empty());
}

TEST_F(RowsServiceTest, ErasedRowsAreGone) {
  MustImport({RowsOf({1, 2, 3}, 1.0F)});
  v1::EraseRequest request;
  request.set_table("ads");
  request.set_keys(BytesOf<std::uint64_t>({2, 3, 3, 9}));
  v1::EraseReply reply;
  ASSERT_TRUE(Ask(rows_, &Rows::Erase, request, &reply).ok());
  EXPECT_EQ(reply.rows(), 2u);
  EXPECT_EQ(Export().size(), 1u);
}

TEST_F(RowsServiceTest, AnExporterWhoLeavesDoesNotHoldTheServerUp) {
  ImportManyRows();
  v1::ExportRequest request;
  request.set_table("ads");
  grpc::ClientContext context;
  const auto stream = rows_->Export(&context, request);
  v1::ExportReply reply;
  ASSERT_TRUE(stream->Read(&reply));
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server_->Shutdown(std::chrono::seconds(10));  // waits for calls that are inside
}

TEST_F(RowsServiceOfFewExportsTest, AnExportWithoutRoomIsRefusedBeforeTheKeysAreListed) {
  ImportManyRows();
  v1::ExportRequest request;
  request.set_table("ads");
  grpc::ClientContext first_context;
  const auto first = rows_->Export(&first_context, request);
  v1::ExportReply reply;
  ASSERT_TRUE(first->Read(&reply));  // the others of 8 messages wait

  grpc::ClientContext second_context;
  const grpc::Status refused = rows_->Export(&second_context, request)->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(second_context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1U);
  // Two messages, and none of the keys, which were not listed.
  EXPECT_TRUE(refused.error_message().ends_with("no room for 2097152 more")) << refused.error_message();

  while (first->Read(&reply)) {
  }
  EXPECT_TRUE(first->Finish().ok());
}

TEST_F(RowsServiceTest, ExportOfAnUnknownTableIsNotFound) {
  v1::ExportRequest request;
  request.set_table("beds");
  grpc::ClientContext context;
  EXPECT_EQ(rows_->Export(&context, request)->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RowsServiceTest, LookupManyAnswersEachInItsOrder) {
  MustImport({RowsOf({5}, 1.0F), RowsOf({0}, 2.0F)});
  v1::LookupManyRequest request;
  *request.add_lookups() = SmallLookup();
  v1::LookupRequest& none = *request.add_lookups();
  none.set_table("ads");
  v1::LookupRequest& halves = *request.add_lookups();
  halves = SmallLookup();
  halves.set_data_type(v1::DATA_TYPE_BFLOAT16);
  v1::LookupManyReply reply;
  const grpc::Status status = Ask(embedding_, &Embedding::LookupMany, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(reply.replies_size(), 3);
  EXPECT_EQ(Values<float>(reply.replies(0).values()),
            (std::vector<float>{1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(reply.replies(1).samples(), 0u);
  EXPECT_EQ(reply.replies(1).width(), 6u);
  EXPECT_EQ(reply.replies(2).values().size(), 24u);
}

// Says which lookups may share a round with those of other tables.
class JoinedLookups final : public EngineObserver {
 public:
  void OnTaken(const Request& request, TicketNumber /*ticket*/) override {
    if (request.Is<LookupRequest>()) joined.push_back(request.As<LookupRequest>().joined);
  }
  void OnDecision(const EngineState& /*state*/, const Decision& /*decision*/) override {}

  std::vector<bool> joined;  // of the lookups, as the engine took them
};

class JoinedLookupsTest : public RowsServiceTest {
 protected:
  void SetUp() override {
    engine_ = std::make_unique<Engine>(*device_, *collective_, exchanges_, test::kTestSecret, EngineOptions{},
                                       SystemClock(), &observer_);
    RowsServiceTest::SetUp();
  }
  void TearDown() override {
    engine_->RequestStop();
    run_.join();
    EXPECT_EQ(observer_.joined, (std::vector<bool>{false, true, true, true}));
  }

  JoinedLookups observer_;
};

// A client may send one table's lookup in a message, and other tables' in others of the same call.
TEST_F(JoinedLookupsTest, AreAllThatComeByLookupMany) {
  EXPECT_TRUE(Ask(embedding_, &Embedding::Lookup, SmallLookup()).ok());
  for (const int lookups : {1, 2}) {
    v1::LookupManyRequest request;
    for (int i = 0; i < lookups; ++i) *request.add_lookups() = SmallLookup();
    EXPECT_TRUE(Ask(embedding_, &Embedding::LookupMany, request).ok());
  }
}

TEST_F(RowsServiceTest, LookupManyOfNothingIsNothing) {
  v1::LookupManyReply reply;
  EXPECT_TRUE(Ask(embedding_, &Embedding::LookupMany, {}, &reply).ok());
  EXPECT_EQ(reply.replies_size(), 0);
}

TEST_F(RowsServiceTest, LookupManyIsRefusedByTheFirstThatIs) {
  v1::LookupManyRequest request;
  *request.add_lookups() = SmallLookup();
  request.add_lookups()->set_table("beds");
  request.add_lookups()->set_table("lamps");
  ExpectStatus(Ask(embedding_, &Embedding::LookupMany, request), grpc::StatusCode::NOT_FOUND,
               "lookups[1]: there is no table \"beds\"");
}

TEST_F(RowsServiceTest, PushManyAppliesEachStepOnceHoweverOftenItIsSent) {
  v1::PushManyRequest request;
  for (std::uint64_t number = 1; number <= 2; ++number) *request.add_pushes() = WholePush(number);
  for (int time = 0; time < 3; ++time) {
    v1::PushManyReply reply;
    const grpc::Status status = Ask(embedding_, &Embedding::PushMany, request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(reply.replies_size(), 2);
    EXPECT_EQ(reply.replies(0).table_step(), 1u);
    EXPECT_EQ(reply.replies(1).table_step(), 2u);
  }
}

TEST_F(RowsServiceTest, PushManyIsRefusedAtOnceByAPartThatIsRefusedForGood) {
  v1::PushManyRequest request;
  for (std::uint32_t place = 0; place < 2; ++place) {  // one table cannot have both places
    v1::PushRequest& push = *request.add_pushes();
    push = WholePush(41);
    push.mutable_step()->set_place(place);
    push.mutable_step()->set_tables(2);
  }
  v1::PushManyReply reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const grpc::Status status = embedding_->PushMany(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(
      status.error_message(),
      "pushes[1]: the table has place 1 of its step here, and place 0 in a part before: it can have one");
}

TEST_F(RowsServiceTest, WhatRefusesAWholeCallHasNoPlaceInIt) {
  engine_->RequestStop();
  v1::LookupManyRequest lookups;
  v1::PushManyRequest pushes;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    *lookups.add_lookups() = SmallLookup();
    *pushes.add_pushes() = WholePush(number);
  }
  EXPECT_EQ(Ask(embedding_, &Embedding::LookupMany, lookups).error_message(), "the server is stopping");
  EXPECT_EQ(Ask(embedding_, &Embedding::PushMany, pushes).error_message(), "the server is stopping");
}

TEST_F(RowsServiceTest, OnlySoManyExportsOfWholeTablesAreUnderWay) {
  ImportManyRows();
  v1::ExportRequest request;
  request.set_table("ads");
  std::list<grpc::ClientContext> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ExportReply>>> streams;
  v1::ExportReply reply;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(rows_->Export(&contexts.emplace_back(), request));
    ASSERT_TRUE(streams.back()->Read(&reply));  // the others of 8 messages wait
  }
  contexts.emplace_back().set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  ExpectStatus(
      rows_->Export(&contexts.back(), request)->Finish(), grpc::StatusCode::RESOURCE_EXHAUSTED,
      "the server is busy: 4 exports of whole tables are under way at this rank, the most at a time");
  EXPECT_EQ(Export({1, 2}).size(), 2U) << "rows by key are few";
  while (streams[0]->Read(&reply)) {
  }
  ASSERT_TRUE(streams[0]->Finish().ok());
  EXPECT_EQ(Export().size(), 400'000U);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (std::size_t i = 1; i < streams.size(); ++i) streams[i]->Finish();
}

TEST_F(RowsServiceTest, PushManyRefusesAPartThatItHasTwiceWithTwoBodies) {
  v1::PushManyRequest request;
  for (const float gradient : {1.0F, 2.0F}) {
    v1::PushRequest& push = *request.add_pushes();
    push = WholePush(1);
    std::vector<float> gradients(push.gradients().size() / sizeof(float), gradient);
    push.set_gradients(BytesOf(gradients));
  }
  const auto send = [&](v1::PushManyReply& reply) {
    return Ask(embedding_, &Embedding::PushMany, request, &reply);
  };
  v1::PushManyReply reply;
  const grpc::Status status = send(reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(
      status.error_message(),
      "pushes[1]: part 0 of step 1 of session " + std::to_string(request.pushes(0).step().session()) +
          " is in the message before, as pushes[0], with other keys, weights, gradients or learning rate");
  *request.mutable_pushes(1) = request.pushes(0);
  ASSERT_TRUE(send(reply).ok()) << "the same body twice is one";
  EXPECT_EQ(reply.replies(0).table_step(), 1u) << "nothing was applied before";
  EXPECT_EQ(reply.replies(1).table_step(), 1u);
}

TEST_F(RowsServiceTest, TheLearningRateThatWasSetIsUsedFromTheNextStepOn) {
  const auto push = [&](std::uint64_t number) {
    v1::PushRequest request;
    request.set_table("ads");
    request.mutable_step()->set_number(number);
    request.set_samples(1);
    request.set_keys(BytesOf<std::uint64_t>({1, 2}));
    request.set_gradients(BytesOf(std::vector<float>(6, 1.0F)));
    EXPECT_TRUE(Ask(embedding_, &Embedding::Push, request).ok());
  };
  const auto set = [&](float rate) {
    v1::SetLearningRateRequest request;
    request.set_table("ads");
    request.set_learning_rate(rate);
    return Ask(admin_, &Admin::SetLearningRate, request);
  };
  MustImport({RowsOf({1, 2}, 10.0F)});
  ASSERT_TRUE(set(0.5F).ok());
  push(1);
  EXPECT_EQ(Export()[1], std::vector<float>(3, 9.5F));
  ASSERT_TRUE(set(0.25F).ok());
  push(2);
  EXPECT_EQ(Export()[1], std::vector<float>(3, 9.25F));

  v1::DescribeTableRequest describe;
  describe.set_table("ads");
  v1::DescribeTableReply description;
  ASSERT_TRUE(Ask(admin_, &Admin::DescribeTable, describe, &description).ok());
  EXPECT_EQ(description.learning_rate(), 0.25F);
  EXPECT_EQ(description.options().optimizer().learning_rate(), 0.01F);
  EXPECT_EQ(set(0.0F).error_message(), "optimizer.learning_rate is 0: must be finite and above 0");
}

}  // namespace
}  // namespace slotwise
