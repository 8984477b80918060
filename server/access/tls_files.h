// The files of a server's TLS. Thread-safety: free functions; texts that were read do not change.
#ifndef SLOTWISE_SERVER_ACCESS_TLS_FILES_H_
#define SLOTWISE_SERVER_ACCESS_TLS_FILES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/small_file.h"
#include "slotwise/status.h"

namespace slotwise {

constexpr std::size_t kMostTlsFileBytes = std::size_t{1} << 20;

// PEM files. Without certificate_file there is no TLS; without client_ca_file no client is asked for a
// certificate.
struct TlsFiles {
  std::string certificate_file = {};
  std::string key_file = {};
  std::string client_ca_file = {};

  bool on() const { return !certificate_file.empty(); }
};

// What the files have.
struct TlsTexts {
  SecretText certificates = {};  // the server's, and what links it to its authority
  SecretText key = {};
  SecretText client_cas = {};  // empty: there is no such file
};

// Reads the files. INVALID_ARGUMENT, in one sentence with the file, unless each is a regular file that is not
// too long and has what its name says, the key is the certificate's, and the certificates of the chain are
// valid now. Does not wait. REQUIRES: there is TLS.
Result<TlsTexts> ReadTlsFiles(const TlsFiles& files);

// What is wrong with a file.
struct TlsError {
  std::string_view field;  // "key_file"
  std::string message;     // "security.tls.key_file: PATH: it ..."
};

// Returns all that is wrong with the files. Without TLS nothing is.
std::vector<TlsError> CheckTlsFiles(const TlsFiles& files);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_TLS_FILES_H_
