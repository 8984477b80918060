// GrpcTransport sends exchanges over a gRPC channel to a rank.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_GRPC_TRANSPORT_H_
#define SLOTWISE_CLIENT_CPP_GRPC_TRANSPORT_H_

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "client/cpp/rank_address.h"
#include "client/cpp/transport.h"
#include "wire/access.h"

namespace slotwise::client {

// An event in the client's completion queue. The threads of Channels call Arrive, which deletes the event.
class Arrival {
 public:
  virtual ~Arrival() = default;
  virtual void Arrive(bool ok) = 0;
};

class GrpcTransport final : public Transport {
 public:
  // `channel` leads to `address`. `queue` and `access` outlive the transport's tries. A try ends as an event
  // of the queue, which is an Arrival.
  GrpcTransport(const RankAddress& address, std::shared_ptr<grpc::Channel> channel, Access& access,
                grpc::CompletionQueue& queue);

  Cancel Send(std::shared_ptr<Exchange> exchange, const Sending& how, Done done) override;
  bool connected() const override;
  void Connect() override;

  // For streams of messages.
  grpc::GenericStub& stub() { return stub_; }

 private:
  class Try;

  const std::string address_;
  const bool gives_reasons_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  Access& access_;
  grpc::CompletionQueue& queue_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_GRPC_TRANSPORT_H_
