#include "tests/client/fake_server.h"

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "tests/rpc/messages.h"
#include "wire/error_details.h"
#include "wire/status_code.h"

namespace slotwise {

using grpc::ServerContext;

// A service of a rank.
template <class Base>
class FakeServer::Service : public Base {
 public:
  Service(FakeServer& fake, std::size_t rank) : fake_(fake), rank_(rank) {}

 protected:
  FakeServer& fake_;
  const std::size_t rank_;
};

class FakeServer::Admin final : public Service<v1::Admin::Service> {
 public:
  using Service::Service;

  grpc::Status GetTopology(ServerContext* context, const v1::GetTopologyRequest* request,
                           v1::GetTopologyReply* reply) override {
    if (auto status = fake_.Enter(*context, rank_, "GetTopology", *request); !status.ok()) return status;
    reply->set_version("fake");
    reply->set_epoch(fake_.epoch);
    reply->set_max_message_bytes(fake_.max_message_bytes_);
    reply->set_gives_reasons(fake_.gives_reasons);
    const std::lock_guard lock(fake_.mutex_);
    reply->set_incarnation(fake_.instance_);
    const bool is_itself = fake_.said_addresses_.empty();
    for (const std::string& address : is_itself ? fake_.addresses_ : fake_.said_addresses_) {
      reply->add_ranks()->set_address(address);
    }
    return grpc::Status::OK;
  }

  grpc::Status DescribeTable(ServerContext* context, const v1::DescribeTableRequest* request,
                             v1::DescribeTableReply* reply) override {
    if (auto status = fake_.Enter(*context, rank_, "DescribeTable", *request); !status.ok()) return status;
    reply->mutable_options()->set_name(request->table());
    reply->mutable_options()->set_dim(2);
    reply->mutable_options()->mutable_optimizer()->set_learning_rate(0.5F);
    return grpc::Status::OK;
  }

  grpc::Status ListEvicted(ServerContext* context, const v1::ListEvictedRequest* request,
                           v1::ListEvictedReply* reply) override {
    if (auto status = fake_.Enter(*context, rank_, "ListEvicted", *request); !status.ok()) return status;
    const std::lock_guard lock(fake_.mutex_);
    *reply = fake_.evicted_pages.at(fake_.evicted_requests.size());
    fake_.evicted_requests.push_back(*request);
    return grpc::Status::OK;
  }

  grpc::Status ListTables(ServerContext* context, const v1::ListTablesRequest* request,
                          v1::ListTablesReply*) override {
    return fake_.Enter(*context, rank_, "ListTables", *request);
  }
};

class FakeServer::Embedding final : public Service<v1::Embedding::Service> {
 public:
  using Service::Service;

  grpc::Status Lookup(ServerContext* context, const v1::LookupRequest* request,
                      v1::LookupReply* reply) override {
    {
      const std::lock_guard lock(fake_.mutex_);
      fake_.lookups_.push_back({rank_, *request, context->deadline() - std::chrono::system_clock::now()});
    }
    if (auto status = fake_.Enter(*context, rank_, "Lookup", *request); !status.ok()) return status;
    std::vector<float> values;
    for (std::size_t i = 0; i < request->keys().size() / sizeof(std::uint64_t); ++i) {
      std::uint64_t key = 0;
      std::memcpy(&key, request->keys().data() + i * sizeof(key), sizeof(key));
      values.push_back(static_cast<float>(key));
      values.push_back(-static_cast<float>(key));
    }
    reply->set_samples(request->samples());
    reply->set_incarnation(fake_.instance());
    reply->set_width(2);
    reply->set_values(BytesOf(values));
    const std::lock_guard lock(fake_.mutex_);
    if (fake_.spoiler_) fake_.spoiler_(*reply);
    return grpc::Status::OK;
  }

  grpc::Status Push(ServerContext* context, const v1::PushRequest* request, v1::PushReply* reply) override {
    {
      const std::lock_guard lock(fake_.mutex_);
      fake_.pushes_.push_back({rank_, *request});
    }
    if (auto status = fake_.Enter(*context, rank_, "Push", *request); !status.ok()) return status;
    const auto status = fake_.TakePart(*context, *request);
    reply->set_table_step(1);
    reply->set_incarnation(fake_.instance());
    return status;
  }
};

class FakeServer::Rows final : public Service<v1::Rows::Service> {
 public:
  using Service::Service;

  grpc::Status Erase(ServerContext* context, const v1::EraseRequest* request,
                     v1::EraseReply* reply) override {
    reply->set_rows(request->keys().size() / sizeof(std::uint64_t));
    return fake_.Enter(*context, rank_, "Erase", *request);
  }

  grpc::Status Import(ServerContext* context, grpc::ServerReader<v1::ImportRequest>* requests,
                      v1::ImportReply* reply) override {
    v1::ImportRequest request;
    while (requests->Read(&request)) {
      reply->set_rows(reply->rows() + request.keys().size() / sizeof(std::uint64_t));
    }
    return fake_.Enter(*context, rank_, "Import", request);
  }
};

FakeServer::FakeServer(std::size_t ranks, std::uint64_t max_message_bytes)
    : before([](const auto&...) { return grpc::Status::OK; }), max_message_bytes_(max_message_bytes) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Rank made{std::make_unique<Admin>(*this, rank), std::make_unique<Embedding>(*this, rank),
              std::make_unique<Rows>(*this, rank), nullptr};
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(made.admin.get());
    builder.RegisterService(made.embedding.get());
    builder.RegisterService(made.rows.get());
    builder.SetMaxReceiveMessageSize(static_cast<int>(max_message_bytes));
    made.server = builder.BuildAndStart();
    addresses_.push_back("127.0.0.1:" + std::to_string(port));
    ranks_.push_back(std::move(made));
  }
}

FakeServer::~FakeServer() {
  Release();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) StopRank(rank);
}

void FakeServer::Spoil(Spoiler spoiler) {
  const std::lock_guard lock(mutex_);
  spoiler_ = std::move(spoiler);
}

void FakeServer::StopRank(std::size_t rank) {
  ranks_[rank].server->Shutdown(std::chrono::system_clock::now());
}

void FakeServer::SayThatItIs(std::uint64_t instance, std::vector<std::string> addresses,
                             std::uint64_t max_message_bytes) {
  if (max_message_bytes > 0) max_message_bytes_ = max_message_bytes;
  const std::lock_guard lock(mutex_);
  instance_ = instance;
  said_addresses_ = std::move(addresses);
}

std::uint64_t FakeServer::instance() {
  const std::lock_guard lock(mutex_);
  return instance_;
}

FakeServer::Fault FakeServer::ForgetSessions(int times) {
  const auto left = std::make_shared<std::atomic<int>>(times);
  return [left](std::size_t, const std::string& method, const google::protobuf::Message&) -> grpc::Status {
    if (method != "Push" || left->fetch_sub(1) <= 0) return grpc::Status::OK;
    return Refusal(FailedPrecondition("as the test wishes").Because(Reason::kSessionForgotten));
  };
}

grpc::Status FakeServer::Refusal(const Status& status) {
  return {static_cast<grpc::StatusCode>(WireCode(status.code())), status.message(),
          ErrorDetails(status, status.message())};
}

FakeServer::Fault FakeServer::FailFirst(int times, const std::string& method, grpc::StatusCode code) {
  return [left = std::make_shared<std::atomic<int>>(times), method, code](
             std::size_t, const std::string& called, const google::protobuf::Message&) {
    return called == method && left->fetch_sub(1) > 0 ? grpc::Status(code, "as the test wishes")
                                                      : grpc::Status::OK;
  };
}

grpc::Status FakeServer::Enter(ServerContext& context, std::size_t rank, const std::string& method,
                               const google::protobuf::Message& request) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(method);
    changed_.notify_all();
  }
  grpc::Status status = before(rank, method, request);
  const bool busy = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && !retry_after.empty();
  if (busy) context.AddTrailingMetadata("grpc-retry-pushback-ms", retry_after);
  return status;
}

// Waits for the step's other parts, as a server does.
grpc::Status FakeServer::TakePart(ServerContext& context, const v1::PushRequest& request) {
  std::unique_lock lock(mutex_);
  parts_.insert(request.step().part());
  changed_.notify_all();
  const auto whole = [&] {
    return released_ || parts_.size() >= request.step().parts() || context.IsCancelled();
  };
  // gRPC does not wake this thread when the call is cancelled, so it polls.
  while (!changed_.wait_for(lock, std::chrono::milliseconds(10), whole)) continue;
  return context.IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
}

void FakeServer::Hang() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return released_; });
}

FakeServer::Fault FakeServer::HangIn(const std::string& method) {
  return [this, method](std::size_t, const std::string& called, const google::protobuf::Message&) {
    if (called == method) Hang();
    return grpc::Status::OK;
  };
}

void FakeServer::Release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

std::vector<FakeServer::LoggedLookup> FakeServer::lookups() {
  const std::lock_guard lock(mutex_);
  return lookups_;
}

std::vector<FakeServer::LoggedPush> FakeServer::pushes() {
  const std::lock_guard lock(mutex_);
  return pushes_;
}

int FakeServer::calls(const std::string& method) {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count(calls_, method));
}

void FakeServer::AwaitCalls(const std::string& method, int times) {
  std::unique_lock lock(mutex_);
  const auto called = [&] { return std::ranges::count(calls_, method) >= times; };
  EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), called))
      << method << " was called " << std::ranges::count(calls_, method) << " times, not " << times;
}

}  // namespace slotwise
