// ReflectionService is gRPC's standard reflection service, which lists services and messages.
//
// gRPC's own has a thread for each stream, and keeps calls that wait for one even after their connections are
// closed, so a caller without a token could fill the memory. This one has no threads, and refuses at once.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_REFLECTION_SERVICE_H_
#define SLOTWISE_SERVER_RPC_REFLECTION_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <set>
#include <string>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace slotwise {

class ReflectionService final : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  // The most open streams of a server; another is RESOURCE_EXHAUSTED.
  static constexpr std::size_t kMostStreams = 8;
  // The longest requested name in bytes; a longer one ends the stream with INVALID_ARGUMENT.
  static constexpr std::size_t kMostNameBytes = 1024;

  // Lists these services and itself. Describes all messages and services that the program has.
  explicit ReflectionService(std::set<std::string> services);

  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  class Stream;

  std::set<std::string> services_;
  std::atomic<std::size_t> streams_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_REFLECTION_SERVICE_H_
