// The files of a server's TLS. Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_ACCESS_TLS_FILES_H_
#define SLOTWISE_SERVER_ACCESS_TLS_FILES_H_

#include <string>

#include "slotwise/status.h"

namespace slotwise {

// PEM files. Without certificate_file there is no TLS; without client_ca_file nobody is asked for a
// certificate.
struct TlsFiles {
  std::string certificate_file = {};
  std::string key_file = {};
  std::string client_ca_file = {};

  bool on() const { return !certificate_file.empty(); }
};

// INVALID_ARGUMENT, in one sentence with the file, unless each can be read and has what its name says, the
// key is the certificate's, and the certificate is valid today.
Status CheckTlsFiles(const TlsFiles& files);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_TLS_FILES_H_
