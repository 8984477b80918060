#include "server/rpc/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "server/rpc/admin_service.h"
#include "server/rpc/bind_error.h"
#include "server/rpc/embedding_service.h"
#include "server/rpc/library_logs.h"
#include "server/rpc/rows_service.h"
#include "wire/freed_memory.h"

namespace slotwise {
namespace {

constexpr std::chrono::milliseconds kLeaveTaking{100};

// Must run before the process builds its first server.
void SetUpGrpcOnce() {
  static const bool once = [] {
    SendLibraryLogsToOurs();
    KeepFreedMemory();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(once);
}

void SetChannelArguments(grpc::ServerBuilder& builder) {
  // Linux lets two processes share a port if both ask for it. We do not ask, so that a second server on a
  // taken port fails.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Keepalive notices peers that vanished without closing their connections, and lets clients probe us too.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

}  // namespace

class RpcServer::Impl {
 public:
  Impl(const RpcOptions& options, Engine& engine)
      : embedding_(engine, gate_, options.default_deadline),
        rows_(engine, gate_, options.default_deadline),
        admin_(engine, gate_, options.max_message_bytes, options.default_deadline) {}

  Status Listen(const RpcOptions& options) {
    const std::string address = options.host + ":" + std::to_string(options.port);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&embedding_);
    builder.RegisterService(&rows_);
    builder.RegisterService(&admin_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
    SetChannelArguments(builder);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0) {
      server_.reset();
      return FailedPrecondition("cannot listen at " + address + ": " + BindError(options.host, options.port));
    }
    SetServing(false);  // gRPC's own default is SERVING
    return {};
  }

  std::uint16_t port() const { return static_cast<std::uint16_t>(port_); }

  void Open(Topology topology) {
    admin_.SetTopology(std::move(topology));
    gate_.Open();
    SetServing(true);
  }

  void Shutdown(std::chrono::milliseconds grace) {
    if (!server_) return;
    SetServing(false);
    gate_.AwaitEmpty(grace);
    // Only idle callers are still connected. gRPC asks them to leave and waits for them, but an idle caller
    // may not look at its connection for minutes.
    server_->Shutdown(std::chrono::system_clock::now() + kLeaveTaking);
    server_->Wait();
    server_.reset();
  }

 private:
  // Sets what the health service says of the server and of each service.
  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(v1::Embedding::service_full_name(), serving);
    health->SetServingStatus(v1::Rows::service_full_name(), serving);
    health->SetServingStatus(v1::Admin::service_full_name(), serving);
  }

  Gate gate_;
  EmbeddingService embedding_;
  RowsService rows_;
  AdminService admin_;
  int port_ = 0;
  // Declared last, so that it is destroyed before the services it calls.
  std::unique_ptr<grpc::Server> server_;
};

Result<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcOptions& options, Engine& engine) {
  SetUpGrpcOnce();
  auto impl = std::make_unique<Impl>(options, engine);
  if (Status status = impl->Listen(options); !status.ok()) return status;
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RpcServer::~RpcServer() { impl_->Shutdown(std::chrono::milliseconds(0)); }

std::uint16_t RpcServer::port() const { return impl_->port(); }
void RpcServer::Open(Topology topology) { impl_->Open(std::move(topology)); }
void RpcServer::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace slotwise
