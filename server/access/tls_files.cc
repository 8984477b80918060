#include "server/access/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

constexpr const char* kNoCertificate = "it has no certificate in PEM";
constexpr const char* kNoKey = "it has no key in PEM, or not the certificate's";

struct Free {
  void operator()(BIO* it) const { BIO_free(it); }
  void operator()(EVP_PKEY* it) const { EVP_PKEY_free(it); }
  void operator()(SSL_CTX* it) const { SSL_CTX_free(it); }
  void operator()(X509* it) const { X509_free(it); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;
using Certificates = std::vector<Owned<X509>>;

// The password of what is encrypted, as gRPC has it: none, and nobody is asked for one at the terminal.
char no_password[] = "";

Owned<BIO> Reader(const SecretText& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.view().data(), static_cast<int>(text.view().size())));
}

// Reads certificates up to the end. Returns what is wrong with them; empty: nothing.
std::string ReadCertificates(const SecretText& text, Certificates& certificates) {
  const auto reader = Reader(text);
  while (X509* const one = PEM_read_bio_X509_AUX(reader.get(), nullptr, nullptr, no_password))
    certificates.emplace_back(one);
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates.empty()) return kNoCertificate;
  return ended ? std::string() : "one of its certificates is damaged";
}

std::string Refused() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return std::string("OpenSSL refuses the certificate: ") + (reason == nullptr ? "it says not why" : reason);
}

// Gives a context the chain, as gRPC will: keys may be too short, too. Returns what is wrong; empty: nothing.
std::string UseChain(SSL_CTX* context, const Certificates& chain) {
  for (const Owned<X509>& one : chain) {
    const bool its_own = &one == &chain.front();
    if ((its_own ? SSL_CTX_use_certificate(context, one.get())
                 : SSL_CTX_add1_chain_cert(context, one.get())) != 1)
      return Refused();
  }
  return {};
}

// Returns what is wrong with the key of a context's certificate; empty: nothing.
std::string UseKey(SSL_CTX* context, const SecretText& text, X509* certificate) {
  const auto reader = Reader(text);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(reader.get(), nullptr, nullptr, no_password));
  const bool right = key && X509_check_private_key(certificate, key.get()) == 1 &&
                     SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  return right ? std::string() : kNoKey;
}

// Returns what is wrong with the time of a chain; empty: nothing.
std::string CheckTime(const Certificates& chain) {
  for (const Owned<X509>& one : chain) {
    const std::string which = &one == &chain.front() ? "the certificate " : "a certificate of the chain ";
    if (X509_cmp_current_time(X509_get0_notAfter(one.get())) <= 0) return which + "has expired";
    if (X509_cmp_current_time(X509_get0_notBefore(one.get())) > 0) return which + "is not valid yet";
  }
  return {};
}

Status Unusable(const char* field, const std::string& path, const std::string& why) {
  return InvalidArgument(std::string("security.tls.") + field + ": " + path + ": " + why);
}

Status CheckTexts(const TlsFiles& files, const TlsTexts& texts) {
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
  if (!context) return Status(StatusCode::kInternal, "OpenSSL cannot make a context");
  Certificates chain;
  std::string why = ReadCertificates(texts.certificates, chain);
  if (why.empty()) why = UseChain(context.get(), chain);
  if (!why.empty()) return Unusable("certificate_file", files.certificate_file, why);
  why = UseKey(context.get(), texts.key, chain.front().get());
  if (!why.empty()) return Unusable("key_file", files.key_file, why);
  why = CheckTime(chain);
  if (!why.empty()) return Unusable("certificate_file", files.certificate_file, why);
  if (files.client_ca_file.empty()) return {};
  Certificates authorities;
  why = ReadCertificates(texts.client_cas, authorities);
  return why.empty() ? Status() : Unusable("client_ca_file", files.client_ca_file, why);
}

Status Read(const char* field, const std::string& path, SecretText& to) {
  auto text = ReadSmallFile(path, kMostTlsFileBytes);
  if (!text.ok()) return Unusable(field, path, text.status().message());
  to = std::move(*text);
  return {};
}

}  // namespace

Result<TlsTexts> ReadTlsFiles(const TlsFiles& files) {
  TlsTexts texts;
  Status status = Read("certificate_file", files.certificate_file, texts.certificates);
  if (status.ok()) status = Read("key_file", files.key_file, texts.key);
  if (status.ok() && !files.client_ca_file.empty())
    status = Read("client_ca_file", files.client_ca_file, texts.client_cas);
  ERR_clear_error();
  if (status.ok()) status = CheckTexts(files, texts);
  ERR_clear_error();
  if (!status.ok()) return status;
  return texts;
}

Status CheckTlsFiles(const TlsFiles& files) { return files.on() ? ReadTlsFiles(files).status() : Status(); }

}  // namespace slotwise
