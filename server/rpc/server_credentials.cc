#include "server/rpc/server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "server/access/tls_watch.h"

namespace slotwise {
namespace {

// gRPC's C++ interface has no credentials with certificates that a program can change, but its core has. The
// core asks for certificates when a server begins, and before every connection.
class WatchedCredentials final : public grpc::ServerCredentials {
 public:
  WatchedCredentials(std::unique_ptr<TlsWatch> watch, bool asks)
      : watch_(std::move(watch)),
        asks_(asks),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                asks ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                     : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                &WatchedCredentials::Fetch, this))) {}
  ~WatchedCredentials() override { grpc_server_credentials_release(credentials_); }
  WatchedCredentials(const WatchedCredentials&) = delete;
  WatchedCredentials& operator=(const WatchedCredentials&) = delete;

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    std::abort();  // no server of Slotwise sets one
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(void* self,
                                                         grpc_ssl_server_certificate_config** config) {
    const auto& me = *static_cast<const WatchedCredentials*>(self);
    const auto texts = me.watch_->TakeNew();
    if (!texts) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{.private_key = texts->key.c_str(),
                                          .cert_chain = texts->certificates.c_str()};
    // Without client certificates, authorities are of no use, but gRPC 1.51 asserts that there are some.
    const SecretText& authorities = me.asks_ ? texts->client_cas : texts->certificates;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::unique_ptr<TlsWatch> watch_;
  const bool asks_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

Result<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(const TlsFiles& files) {
  if (!files.on()) return grpc::InsecureServerCredentials();
  auto watch = TlsWatch::Make(files);
  if (!watch.ok()) return watch.status();
  std::shared_ptr<grpc::ServerCredentials> credentials =
      std::make_shared<WatchedCredentials>(std::move(*watch), !files.client_ca_file.empty());
  return credentials;
}

}  // namespace slotwise
