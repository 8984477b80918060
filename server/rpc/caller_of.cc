#include "server/rpc/caller_of.h"

#include <grpc/grpc_security_constants.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace slotwise {
namespace {

// Returns the names in the certificate that the peer has proven to have; none without one.
std::vector<std::string> CertificateNames(const grpc::CallbackServerContext& context) {
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (!peer || !peer->IsPeerAuthenticated()) return names;
  for (const char* const property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(property)) {
      names.emplace_back(name.data(), name.size());
    }
  }
  return names;
}

PrincipalPtr PrincipalOf(const grpc::CallbackServerContext& context, const Gate& gate) {
  if (!gate.asks_who()) return nullptr;
  std::string_view authorization;
  const auto& metadata = context.client_metadata();
  if (const auto said = metadata.find("authorization"); said != metadata.end()) {
    authorization = {said->second.data(), said->second.size()};
  }
  return gate.Authenticate(authorization, CertificateNames(context));
}

}  // namespace

Caller CallerOf(const grpc::CallbackServerContext& context, const Gate& gate,
                Caller::Clock::time_point deadline, CallKind kind) {
  return Caller(context.peer(), deadline, kind, PrincipalOf(context, gate));
}

}  // namespace slotwise
