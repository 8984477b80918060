#include "server/rpc/rpc_server.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "server/data/data_server.h"
#include "server/intake/audit_log.h"
#include "server/intake/rare_log.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/embedding_service.h"
#include "server/rpc/health_service.h"
#include "server/rpc/health_watch.h"
#include "server/rpc/library_logs.h"
#include "server/rpc/listener.h"
#include "server/rpc/received_frames.h"
#include "server/rpc/reflection_service.h"
#include "server/rpc/rows_service.h"
#include "server/rpc/server_credentials.h"
#include "wire/data_version.h"
#include "wire/freed_memory.h"

namespace slotwise {
namespace {

constexpr std::chrono::milliseconds kLeaveTaking{100};
constexpr std::uint64_t kExportShare = 4;
// A token has at most 4096 bytes, and a trace less than a hundred. A field counts as 32 bytes more, and takes
// 165 bytes in gRPC, so this limits the memory of a call.
constexpr int kMostMetadataBytes = 8 << 10;
// Waiting clients have most of a message on its way, too.
constexpr std::uint64_t kReceivedShare = 2;

// Runs before the process builds its first server.
void SetUpGrpcOnce() {
  static const bool once = [] {
    SendLibraryLogsToOurs();
    KeepFreedMemory();
    return true;
  }();
  static_cast<void>(once);
}

// The system ends a connection whose peer has taken nothing for this long.
void EndIfStalled(int socket, std::chrono::milliseconds limit) {
  const auto ms = static_cast<unsigned>(limit.count());
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

// Returns the user at the other end of a Unix socket; nothing for another kind of socket. If the system does
// not name the user, the number is no user's.
std::optional<std::uint32_t> UserAt(int socket) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX)
    return std::nullopt;
  ucred peer{.pid = 0, .uid = std::numeric_limits<uid_t>::max(), .gid = 0};
  size = sizeof(peer);
  getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.uid;
}

// The limit on bytes that are received and not decoded.
std::uint64_t MostReceived(const RpcOptions& options) {
  return std::max(kReceivedShare * options.max_queue_bytes, 4 * options.max_message_bytes);
}

void SetChannelArguments(const RpcOptions& options, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(options.max_calls_per_connection));
  // A few kilobytes may decompress to gigabytes, and gRPC would do that before it checks the size. Requests
  // are arrays of ids and numbers, which hardly compress at all.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(options.hello_timeout.count()));
  // Keepalive notices peers that vanished without closing their connections, and lets clients probe.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

}  // namespace

class RpcServer::Impl {
 public:
  Impl(const RpcOptions& options, Engine& engine)
      : engine_(engine),
        reply_timeout_(options.reply_timeout),
        engine_timeout_(options.engine_timeout),
        on_serving_(options.on_serving),
        gate_(options.reply_timeout, options.access),
        embedding_(engine, gate_, options.default_deadline),
        rows_(engine, gate_, options.max_queue_bytes / kExportShare, options.default_deadline),
        admin_(engine, gate_,
               {.max_message_bytes = options.max_message_bytes,
                .max_round_bytes = options.max_round_bytes,
                .data_version = options.speaks_data() ? kDataVersion : 0},
               options.default_deadline),
        data_({.max_message_bytes = options.max_message_bytes,
               .max_calls_per_connection = options.max_calls_per_connection,
               .max_received_bytes = MostReceived(options),
               .max_shared_bytes = options.max_shared_bytes,
               .max_device_shared_bytes = options.max_device_shared_bytes,
               .reply_timeout = options.reply_timeout,
               .hello_timeout = options.hello_timeout},
              engine, gate_) {
    admin_.SetDataLoad([this] { return data_.Load(); });
  }

  Status Listen(const RpcOptions& options) {
    auto listener = Listener::Bind(options.host, options.port, options.max_connections);
    if (!listener.ok()) return listener.status();
    if (!options.local.empty() && options.speaks_data_locally()) {
      if (Status local = (*listener)->ListenLocally(options.local); !local.ok()) return local;
    }
    auto credentials = ServerCredentialsOf(options.tls);
    if (!credentials.ok()) return credentials.status();
    grpc::ServerBuilder builder;
    using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    connections_ = builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, *credentials);
    builder.RegisterService(&embedding_);
    builder.RegisterService(&rows_);
    builder.RegisterService(&admin_);
    builder.RegisterService(&health_);
    builder.RegisterService(&reflection_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
    // gRPC ends a call whose message is incomplete when too much is received.
    builder.SetResourceQuota(grpc::ResourceQuota("received").Resize(MostReceived(options)));
    SetChannelArguments(options, builder);
    LimitOpenCalls(options.max_calls_per_connection, options.max_calls, options.max_connections);
    server_ = builder.BuildAndStart();
    if (!server_) return FailedPrecondition("gRPC cannot make a server");
    listener_ = std::move(*listener);
    listener_->Start([this, speaks_data = options.speaks_data(), tls = options.tls.on()](int socket) {
      EndIfStalled(socket, reply_timeout_);
      if (const auto user = UserAt(socket)) return TakeLocal(socket, *user);
      // Frames are metered when they are decrypted. Only this thread adds TLS connections.
      if (tls) return HandToGrpc(socket);
      if (!speaks_data) return MeterAndHandToGrpc(socket);
      data_.Take(socket, [this](int other) { MeterAndHandToGrpc(other); });
    });
    return {};
  }

  std::uint16_t port() const { return listener_->port(); }
  RankStats Stats() const { return admin_.Stats(); }

  void Open(Topology topology) {
    admin_.SetTopology(std::move(topology));
    gate_.Open();
    SetServing(true);
    held_back_deeds_.emplace();
    health_watch_.emplace(
        engine_timeout_, [this] { return engine_.BusyFor(); }, [this](bool serving) { SetServing(serving); });
  }

  void Shutdown(std::chrono::milliseconds grace) {
    if (!server_) return;
    health_watch_.reset();
    SetServing(false);
    admin_.Stop();
    gate_.AwaitEmpty(grace);
    listener_->Stop();
    data_.Stop();
    // Only idle callers are still connected. gRPC asks them to leave and waits for them, but an idle caller
    // may not read from its connection for minutes.
    server_->Shutdown(std::chrono::system_clock::now() + kLeaveTaking);
    server_->Wait();
    server_.reset();
    held_back_deeds_.reset();
  }

 private:
  void SetServing(bool serves) {
    health_.SetServing(serves);
    on_serving_(serves);
  }
  void TakeLocal(int socket, std::uint32_t user) {
    if (gate_.LetsIn(user)) return data_.Take(socket, [](int other) { close(other); });
    static RareLog log(std::chrono::minutes(1), 3);
    if (const auto held_back = log.Pass()) {
      spdlog::warn(
          "user {} of this host may not connect to the Unix socket (security.local_users) ({} more since the "
          "last such line)",
          user, *held_back);
    }
    close(socket);
  }
  void MeterAndHandToGrpc(int socket) {
    if (!MeterFrames(socket)) {  // no process has so many descriptors
      close(socket);
      return;
    }
    HandToGrpc(socket);
  }
  void HandToGrpc(int socket) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket;
    connections_->HandleNewConnection(&connection);
  }

  const Engine& engine_;
  const std::chrono::milliseconds reply_timeout_;
  const std::chrono::milliseconds engine_timeout_;
  const std::function<void(bool)> on_serving_;
  WatchedGate gate_;
  EmbeddingService embedding_;
  RowsService rows_;
  AdminService admin_;
  HealthService health_{
      {v1::Embedding::service_full_name(), v1::Rows::service_full_name(), v1::Admin::service_full_name()}};
  ReflectionService reflection_{{v1::Embedding::service_full_name(), v1::Rows::service_full_name(),
                                 v1::Admin::service_full_name(),
                                 grpc::health::v1::Health::service_full_name()}};
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  // Destroyed before the services that it calls.
  std::unique_ptr<grpc::Server> server_;
  // Hands connections to gRPC's server, so it stops first.
  DataServer data_;
  std::unique_ptr<Listener> listener_;
  std::optional<HeldBackDeeds> held_back_deeds_;
  std::optional<HealthWatch> health_watch_;
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
RankStats RpcServer::Stats() const { return impl_->Stats(); }
void RpcServer::Open(Topology topology) { impl_->Open(std::move(topology)); }
void RpcServer::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace slotwise
