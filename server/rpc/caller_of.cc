#include "server/rpc/caller_of.h"

#include <grpc/grpc_security_constants.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wire/trace_id.h"

namespace slotwise {
namespace {

// Returns the names in the certificate that the peer has proven to own; none without a certificate. The
// common name counts only if there are no alternative names of any kind, as in RFC 6125 (6.4.4) for servers.
std::vector<std::string> CertificateNames(const grpc::CallbackServerContext& context) {
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (!peer || !peer->IsPeerAuthenticated()) return names;
  const auto add = [&](const char* property) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(property)) {
      names.emplace_back(name.data(), name.size());
    }
  };
  if (peer->FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME).empty()) {
    add(GRPC_X509_CN_PROPERTY_NAME);
  } else {
    add(GRPC_PEER_DNS_PROPERTY_NAME);
    add(GRPC_PEER_URI_PROPERTY_NAME);
  }
  return names;
}

PrincipalPtr PrincipalOf(const grpc::CallbackServerContext& context, const Gate& gate) {
  if (!gate.asks_who()) return nullptr;
  std::string_view authorization;
  const auto& metadata = context.client_metadata();
  if (metadata.count("authorization") > 1)
    return gate.Authenticate("several", {});  // the caller is ambiguous
  if (const auto said = metadata.find("authorization"); said != metadata.end()) {
    authorization = {said->second.data(), said->second.size()};
  }
  return gate.Authenticate(authorization, CertificateNames(context));
}

}  // namespace

Caller CallerOf(const grpc::CallbackServerContext& context, const Gate& gate,
                Caller::Clock::time_point deadline, CallKind kind) {
  std::string_view trace;
  const auto& metadata = context.client_metadata();
  if (const auto said = metadata.find("traceparent"); said != metadata.end()) {
    trace = TraceIdOf({said->second.data(), said->second.size()});
  }
  return Caller(context.peer(), deadline, kind, PrincipalOf(context, gate), trace);
}

}  // namespace slotwise
