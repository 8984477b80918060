#include "server/rpc/health_service.h"

#include <optional>
#include <string>
#include <utility>

#include "server/intake/quoted.h"
#include "server/rpc/grpc_status.h"
#include "slotwise/status.h"
#include "wire/hand_over.h"

namespace slotwise {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One stream of Watch. It writes one message at a time, so a caller that reads nothing keeps one waiting.
class HealthService::Watching final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  // The stream owns itself until gRPC is done with it.
  static std::shared_ptr<Watching> Begin(HealthService& service, bool known) {
    std::shared_ptr<Watching> watching(new Watching(service, known));
    watching->self_ = watching;
    HandOver(watching.get());
    return watching;
  }

  // Returns whether the server knows the watched service.
  bool known() const { return known_; }

  // Sets the status that the next GoOn sends.
  void Want(ServingStatus status) {
    const std::lock_guard lock(mutex_);
    wanted_ = status;
  }

  // Begins to write a status that the caller does not know, or ends the stream if the caller has gone.
  void GoOn() {
    bool gone = false;
    {
      const std::lock_guard lock(mutex_);
      gone = gone_;
      if (writing_ || ended_ || (!gone && wanted_ == told_)) return;
      ended_ = gone;
      writing_ = !gone;
      told_ = wanted_;
      if (told_) message_.set_status(*told_);
    }
    // From here on only this thread calls gRPC for the stream, until the write is done.
    if (gone) return Finish(grpc::Status::CANCELLED);
    StartWrite(&message_);
  }

  // REQUIRES: GoOn was not called.
  void Refuse(const Status& why) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    Finish(ToGrpc(why));
  }

 private:
  Watching(HealthService& service, bool known) : service_(service), known_(known) {}

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      gone_ = gone_ || !ok;
    }
    GoOn();
  }

  void OnCancel() override {
    TakeOver(this);
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
    }
    GoOn();
    HandOver(this);
  }

  void OnDone() override {
    TakeOver(this);
    // `last` may be the last reference, and then destroys this object.
    const std::shared_ptr<Watching> last = std::move(self_);
    service_.Forget(last);
  }

  HealthService& service_;
  const bool known_;
  std::mutex mutex_;
  std::optional<ServingStatus> wanted_;
  std::optional<ServingStatus> told_;
  bool writing_ = false;
  bool gone_ = false;
  bool ended_ = false;
  HealthCheckResponse message_;  // written at present
  std::shared_ptr<Watching> self_;
};

HealthService::HealthService(std::set<std::string> services) : services_(std::move(services)) {}
HealthService::~HealthService() = default;

void HealthService::SetServing(bool serving) {
  std::set<std::shared_ptr<Watching>> watches;
  {
    const std::lock_guard lock(mutex_);
    status_ = serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
    for (const auto& watching : watches_) {
      if (watching->known()) watching->Want(status_);
    }
    watches = watches_;
  }
  for (const auto& watching : watches) watching->GoOn();
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!Knows(request->service())) {
    reactor->Finish(ToGrpc(NotFound("there is no service " + Quoted(request->service()))));
    return reactor;
  }
  {
    const std::lock_guard lock(mutex_);
    response->set_status(status_);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(grpc::CallbackServerContext* /*context*/,
                                                                    const HealthCheckRequest* request) {
  const auto watching = Watching::Begin(*this, Knows(request->service()));
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    has_room = watches_.size() < kMostWatches;
    if (has_room) {
      watches_.insert(watching);
      watching->Want(watching->known() ? status_ : HealthCheckResponse::SERVICE_UNKNOWN);
    }
  }
  if (has_room) {
    watching->GoOn();
  } else {
    watching->Refuse(Unavailable("the server is busy: " + std::to_string(kMostWatches) +
                                 " watches of its health are open, and no more may be"));
  }
  return watching.get();
}

void HealthService::Forget(const std::shared_ptr<Watching>& watching) {
  const std::lock_guard lock(mutex_);
  watches_.erase(watching);
}

}  // namespace slotwise
