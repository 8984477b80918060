// HealthService is gRPC's standard health service. gRPC's own does not limit the streams of Watch, whose
// memory is charged to no caller.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_HEALTH_SERVICE_H_
#define SLOTWISE_SERVER_RPC_HEALTH_SERVICE_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"

namespace slotwise {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // The most open streams of a server; another is UNAVAILABLE.
  static constexpr std::size_t kMostWatches = 1024;

  // Knows these services, and "", the whole server. All are NOT_SERVING at first.
  explicit HealthService(std::set<std::string> services);
  ~HealthService() override;

  // Sets the status of all services.
  void SetServing(bool serving);

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;
  class Watching;

  bool Knows(const std::string& service) const { return service.empty() || services_.contains(service); }
  void Forget(const std::shared_ptr<Watching>& watching);

  const std::set<std::string> services_;
  std::mutex mutex_;
  ServingStatus status_ = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  std::set<std::shared_ptr<Watching>> watches_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_HEALTH_SERVICE_H_
