#include "server/access/tls_files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <fstream>
#include <memory>

namespace slotwise {
namespace {

Status Unusable(const char* field, const std::string& path, const std::string& why) {
  return InvalidArgument(std::string("security.tls.") + field + ": " + path + ": " + why);
}

Status CheckReadable(const char* field, const std::string& path) {
  const std::ifstream file(path);
  return file ? Status() : Unusable(field, path, "it cannot be read");
}

}  // namespace

Status CheckTlsFiles(const TlsFiles& files) {
  if (!files.on()) return {};
  if (Status status = CheckReadable("certificate_file", files.certificate_file); !status.ok()) return status;
  if (Status status = CheckReadable("key_file", files.key_file); !status.ok()) return status;
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return Status(StatusCode::kInternal, "OpenSSL cannot make a context");
  ERR_clear_error();
  Status status;
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate_file.c_str()) != 1) {
    status = Unusable("certificate_file", files.certificate_file, "it has no certificate in PEM");
  } else if (SSL_CTX_use_PrivateKey_file(context.get(), files.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    status = Unusable("key_file", files.key_file, "it has no key in PEM, or not the certificate's");
  } else if (const X509* const its = SSL_CTX_get0_certificate(context.get());
             X509_cmp_current_time(X509_get0_notAfter(its)) <= 0) {
    status = Unusable("certificate_file", files.certificate_file, "the certificate has expired");
  } else if (X509_cmp_current_time(X509_get0_notBefore(its)) > 0) {
    status = Unusable("certificate_file", files.certificate_file, "the certificate is not valid yet");
  }
  if (status.ok() && !files.client_ca_file.empty()) {
    status = CheckReadable("client_ca_file", files.client_ca_file);
    if (status.ok() && SSL_CTX_load_verify_file(context.get(), files.client_ca_file.c_str()) != 1)
      status = Unusable("client_ca_file", files.client_ca_file, "it has no certificate in PEM");
  }
  ERR_clear_error();
  return status;
}

}  // namespace slotwise
