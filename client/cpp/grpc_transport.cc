#include "client/cpp/grpc_transport.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "client/cpp/backoff.h"
#include "client/cpp/from_grpc.h"

namespace slotwise::client {

class GrpcTransport::Try final : public Arrival {
 public:
  Try(GrpcTransport& by, std::shared_ptr<Exchange> exchange, Done done)
      : by_(by), exchange_(std::move(exchange)), done_(std::move(done)) {}

  void Start(const Sending& how) {
    const grpc::ByteBuffer& message = exchange_->Message();
    context_.set_deadline(Until(how.deadline));
    context_.set_wait_for_ready(how.waits_for_connection);
    by_.access_.Add(context_);
    if (!how.traceparent.empty()) context_.AddMetadata("traceparent", how.traceparent);
    reader_ = by_.stub_.PrepareUnaryCall(&context_, exchange_->method(), message, &by_.queue_);
    reader_->StartCall();
    reader_->Finish(&reply_, &status_, static_cast<Arrival*>(this));
  }

  void Cancel() { context_.TryCancel(); }

  void Arrive(bool) override {
    const std::unique_ptr<Try> self(this);
    done_(FromGrpc(status_, context_, by_.address_, by_.gives_reasons_),
          [this] { return exchange_->ReadMessage(reply_); });
  }

 private:
  GrpcTransport& by_;
  const std::shared_ptr<Exchange> exchange_;
  const Done done_;
  grpc::ClientContext context_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader_;
};

GrpcTransport::GrpcTransport(const RankAddress& address, std::shared_ptr<grpc::Channel> channel,
                             Access& access, grpc::CompletionQueue& queue)
    : address_(address.address),
      gives_reasons_(address.gives_reasons),
      channel_(std::move(channel)),
      stub_(channel_),
      access_(access),
      queue_(queue) {}

Transport::Cancel GrpcTransport::Send(std::shared_ptr<Exchange> exchange, const Sending& how, Done done) {
  auto started = std::make_unique<Try>(*this, std::move(exchange), std::move(done));
  started->Start(how);
  return [sent = started.release()] { sent->Cancel(); };
}

bool GrpcTransport::connected() const { return channel_->GetState(false) == GRPC_CHANNEL_READY; }
void GrpcTransport::Connect() { channel_->GetState(true); }

}  // namespace slotwise::client
