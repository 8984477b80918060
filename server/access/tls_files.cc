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

// The password of encrypted files is empty, as in gRPC, so that the terminal is not asked for one.
char no_password[] = "";

Owned<BIO> Reader(const SecretText& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.view().data(), static_cast<int>(text.view().size())));
}

// Reads certificates up to the end. Returns the error; empty: there is none.
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

// Gives a context the chain, as gRPC will; this also refuses short keys. Returns the error; empty: none.
std::string UseChain(SSL_CTX* context, const Certificates& chain) {
  for (const Owned<X509>& one : chain) {
    const bool its_own = &one == &chain.front();
    if ((its_own ? SSL_CTX_use_certificate(context, one.get())
                 : SSL_CTX_add1_chain_cert(context, one.get())) != 1)
      return Refused();
  }
  return {};
}

// Returns the error of the key for a context's certificate; empty: there is none.
std::string UseKey(SSL_CTX* context, const SecretText& text, X509* certificate) {
  const auto reader = Reader(text);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(reader.get(), nullptr, nullptr, no_password));
  const bool right = key && X509_check_private_key(certificate, key.get()) == 1 &&
                     SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  return right ? std::string() : kNoKey;
}

// Returns the error in the validity times of a chain; empty: there is none.
std::string CheckTime(const Certificates& chain) {
  for (const Owned<X509>& one : chain) {
    const std::string which = &one == &chain.front() ? "the certificate " : "a certificate of the chain ";
    if (X509_cmp_current_time(X509_get0_notAfter(one.get())) <= 0) return which + "has expired";
    if (X509_cmp_current_time(X509_get0_notBefore(one.get())) > 0) return which + "is not valid yet";
  }
  return {};
}

constexpr std::string_view kCertificateFile = "certificate_file";
constexpr std::string_view kKeyFile = "key_file";
constexpr std::string_view kClientCaFile = "client_ca_file";

// Adds the error in a file, if there is one.
void AddError(std::string_view field, const std::string& path, const std::string& why,
              std::vector<TlsError>& errors) {
  if (!why.empty())
    errors.push_back({field, "security.tls." + std::string(field) + ": " + path + ": " + why});
}

void CheckTexts(const TlsFiles& files, const TlsTexts& texts, std::vector<TlsError>& errors) {
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
  if (!context)
    return AddError(kCertificateFile, files.certificate_file, "OpenSSL cannot make a context", errors);
  Certificates chain;
  std::string why = ReadCertificates(texts.certificates, chain);
  if (why.empty()) why = UseChain(context.get(), chain);
  AddError(kCertificateFile, files.certificate_file, why, errors);
  if (why.empty()) {
    AddError(kKeyFile, files.key_file, UseKey(context.get(), texts.key, chain.front().get()), errors);
    AddError(kCertificateFile, files.certificate_file, CheckTime(chain), errors);
  }
  if (files.client_ca_file.empty()) return;
  Certificates authorities;
  AddError(kClientCaFile, files.client_ca_file, ReadCertificates(texts.client_cas, authorities), errors);
}

void Read(std::string_view field, const std::string& path, SecretText& to, std::vector<TlsError>& errors) {
  auto text = ReadSmallFile(path, kMostTlsFileBytes);
  if (text.ok()) {
    to = std::move(*text);
  } else {
    AddError(field, path, text.status().message(), errors);
  }
}

TlsTexts ReadAll(const TlsFiles& files, std::vector<TlsError>& errors) {
  TlsTexts texts;
  Read(kCertificateFile, files.certificate_file, texts.certificates, errors);
  Read(kKeyFile, files.key_file, texts.key, errors);
  if (!files.client_ca_file.empty()) Read(kClientCaFile, files.client_ca_file, texts.client_cas, errors);
  ERR_clear_error();
  if (errors.empty()) CheckTexts(files, texts, errors);
  ERR_clear_error();
  return texts;
}

}  // namespace

Result<TlsTexts> ReadTlsFiles(const TlsFiles& files) {
  std::vector<TlsError> errors;
  TlsTexts texts = ReadAll(files, errors);
  if (!errors.empty()) return InvalidArgument(errors.front().message);
  return texts;
}

std::vector<TlsError> CheckTlsFiles(const TlsFiles& files) {
  std::vector<TlsError> errors;
  if (files.on()) ReadAll(files, errors);
  return errors;
}

}  // namespace slotwise
