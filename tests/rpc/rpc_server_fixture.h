// Runs a rank's whole server on this machine's CPU, and calls it through generated stubs.
#ifndef SLOTWISE_TESTS_RPC_RPC_SERVER_FIXTURE_H_
#define SLOTWISE_TESTS_RPC_RPC_SERVER_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/engine/operations/create_table.h"
#include "server/rpc/rpc_server.h"
#include "slotwise/v1/admin.grpc.pb.h"
#include "slotwise/v1/embedding.grpc.pb.h"
#include "slotwise/v1/rows.grpc.pb.h"
#include "tests/rpc/messages.h"
#include "tests/support/test_secret.h"

namespace slotwise {

class RpcServerTest : public testing::Test {
 protected:
  ~RpcServerTest() override {
    engine_->RequestStop();
    if (run_.joinable()) run_.join();
  }

  // Listens at any free port. The engine runs; the gate stays closed.
  void Start(RpcOptions options = {}) {
    auto server = RpcServer::Start(options, *engine_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                         grpc::InsecureChannelCredentials(), SmallWindows());
    embedding_ = v1::Embedding::NewStub(channel_);
    rows_ = v1::Rows::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
    run_ = std::thread([this] { engine_->Run(); });
  }

  void OpenWithAds(RpcOptions options = {}) {
    Start(options);
    server_->Open({.version = "1.2.3", .ranks = {{"here:1", "cpu"}}, .rank = Rank{0}});
    std::promise<bool> made;
    engine_->Submit(
        CreateTableRequest{.options = AdsTable(), .done = [&](const auto& r) { made.set_value(r.ok()); }});
    ASSERT_TRUE(made.get_future().get());
  }

  using Admin = v1::Admin::Stub;
  using Embedding = v1::Embedding::Stub;
  using Rows = v1::Rows::Stub;

  // Calls a stub's method, and waits for the call's end. `reply` may be null.
  template <class Stub, class Request, class Reply>
  static grpc::Status Ask(const std::unique_ptr<Stub>& stub,
                          grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                          const std::type_identity_t<Request>& request,
                          std::type_identity_t<Reply>* reply = nullptr) {
    grpc::ClientContext context;
    Reply ignored;
    return ((*stub).*method)(&context, request, reply != nullptr ? reply : &ignored);
  }
  grpc::Status GetTopology(v1::GetTopologyReply& reply) {
    return Ask(admin_, &Admin::GetTopology, {}, &reply);
  }
  static void ExpectStatus(const grpc::Status& status, grpc::StatusCode code, const std::string& words) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_NE(status.error_message().find(words), std::string::npos) << status.error_message();
  }

  // gRPC measures a connection and grows its windows to up to 16 MiB. Here they stay small, so that bytes
  // that a client does not read wait at the server, however fast this machine is.
  static grpc::ChannelArguments SmallWindows() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
    return arguments;
  }

  std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  Exchanges exchanges_ = Exchanges::MakeSolo(*device_);
  std::unique_ptr<Engine> engine_ =
      std::make_unique<Engine>(*device_, *collective_, exchanges_, test::kTestSecret, EngineOptions{});
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Embedding::Stub> embedding_;
  std::unique_ptr<v1::Rows::Stub> rows_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::thread run_;
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_RPC_RPC_SERVER_FIXTURE_H_
