// Reads and checks the files of a server's TLS. Thread-safety: free functions; TlsTexts do not change.
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

// PEM files. Without certificate_file there is no TLS; without client_ca_file clients need no certificate.
struct TlsFiles {
  std::string certificate_file = {};
  std::string key_file = {};
  std::string client_ca_file = {};

  bool on() const { return !certificate_file.empty(); }
};

// The contents of the files.
struct TlsTexts {
  SecretText certificates = {};  // the server's, and those that link it to its authority
  SecretText key = {};
  SecretText client_cas = {};  // empty: there is no such file
};

// Reads the files. INVALID_ARGUMENT, in one sentence with the file, unless each is a regular file that is not
// too long and has the right contents, the key is the certificate's, and the certificates of the chain are
// valid now. Never blocks. REQUIRES: there is TLS.
Result<TlsTexts> ReadTlsFiles(const TlsFiles& files);

// An error in a file.
struct TlsError {
  std::string_view field;  // "key_file"
  std::string message;     // "security.tls.key_file: PATH: it ..."
};

// Returns all errors in the files; none without TLS.
std::vector<TlsError> CheckTlsFiles(const TlsFiles& files);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_TLS_FILES_H_
