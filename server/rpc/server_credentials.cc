#include "server/rpc/server_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

namespace slotwise {
namespace {

constexpr unsigned int kLookEverySeconds = 1;

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files) {
  namespace tls = grpc::experimental;
  if (!files.on()) return grpc::InsecureServerCredentials();
  const bool asks = !files.client_ca_file.empty();
  auto provider = asks ? std::make_shared<tls::FileWatcherCertificateProvider>(
                             files.key_file, files.certificate_file, files.client_ca_file, kLookEverySeconds)
                       : std::make_shared<tls::FileWatcherCertificateProvider>(
                             files.key_file, files.certificate_file, kLookEverySeconds);
  tls::TlsServerCredentialsOptions options(std::move(provider));
  options.watch_identity_key_cert_pairs();
  if (asks) options.watch_root_certs();
  options.set_cert_request_type(asks ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                     : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return tls::TlsServerCredentials(options);
}

}  // namespace slotwise
