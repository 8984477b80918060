// The health service's streams report changes, and their number is limited.
#include "server/rpc/health_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <vector>

namespace slotwise {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthServiceTest : public testing::Test {
 protected:
  HealthServiceTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = Health::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  }
  ~HealthServiceTest() override {
    for (grpc::ClientContext& context : contexts_) context.TryCancel();
    server_->Shutdown();
  }

  struct Said {
    grpc::Status status;
    HealthCheckResponse response;
  };
  Said Check(const std::string& of) {
    Said said;
    HealthCheckRequest request;
    request.set_service(of);
    grpc::ClientContext context;
    said.status = stub_->Check(&context, request, &said.response);
    return said;
  }
  using Stream = std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>;
  Stream Watch(const std::string& of) {
    HealthCheckRequest request;
    request.set_service(of);
    return stub_->Watch(&contexts_.emplace_back(), request);
  }
  static int Next(const Stream& stream) {
    HealthCheckResponse response;
    return stream->Read(&response) ? response.status() : -1;
  }

  HealthService service_{{"a.Service"}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Health::Stub> stub_;
  std::list<grpc::ClientContext> contexts_;  // of watches
};

TEST_F(HealthServiceTest, SaysWhatIsSetOfTheServerAndItsServices) {
  for (const bool serving : {false, true, false}) {
    service_.SetServing(serving);
    for (const char* name : {"", "a.Service"}) {
      const Said said = Check(name);
      EXPECT_TRUE(said.status.ok());
      EXPECT_EQ(said.response.status(),
                serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
    }
  }
  EXPECT_EQ(Check("no.Service").status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthServiceTest, TellsWatchesWhatChanges) {
  const Stream stream = Watch("a.Service");
  const Stream unknown = Watch("no.Service");
  EXPECT_EQ(Next(stream), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Next(unknown), HealthCheckResponse::SERVICE_UNKNOWN);
  service_.SetServing(true);
  EXPECT_EQ(Next(stream), HealthCheckResponse::SERVING);
  service_.SetServing(true);  // nothing new
  service_.SetServing(false);
  EXPECT_EQ(Next(stream), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthServiceTest, RefusesMoreWatchesThanItMayHave) {
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < HealthService::kMostWatches; ++i) {
    streams.push_back(Watch(i % 2 == 0 ? "" : "no.Service"));
    ASSERT_NE(Next(streams.back()), -1);
  }
  const grpc::Status refused = Watch("")->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(refused.error_message(),
            "the server is busy: 1024 watches of its health are open, and no more may be");
  EXPECT_TRUE(Check("").status.ok());
  contexts_.front().TryCancel();
  Stream next = Watch("");
  while (Next(next) == -1) next = Watch("");  // until the server has heard of the end
}

}  // namespace
}  // namespace slotwise
