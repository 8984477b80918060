// Credentials say how a client proves who it is, and whom it trusts to be the server.
// Thread-safety: plain values.
#ifndef SLOTWISE_CREDENTIALS_H_
#define SLOTWISE_CREDENTIALS_H_

#include <string>

namespace slotwise {

// Files are read when the client connects, and again, within a second or so, when they change; a connection
// keeps the certificates with which it began. An empty text means none.
struct Credentials {
  // The bearer token: the file's first line that is not empty. Every call sends it.
  std::string token_file = {};
  // Certificates, in PEM, of the authorities that the server's certificate may come from. If set, all
  // connections use TLS.
  std::string ca_file = {};
  // The client's own certificate and key, in PEM, for servers that ask for them. Both need ca_file.
  std::string certificate_file = {};
  std::string key_file = {};
  // The name in the server's certificate, if that differs from the address's name.
  std::string server_name = {};
  // Lets the token travel unencrypted to other hosts, where any listener can take it.
  bool insecure = false;

  bool tls() const { return !ca_file.empty(); }

  // Reads SLOTWISE_TOKEN_FILE, SLOTWISE_CA_FILE, SLOTWISE_CERTIFICATE_FILE, SLOTWISE_KEY_FILE,
  // SLOTWISE_SERVER_NAME and SLOTWISE_INSECURE ("1" is true).
  static Credentials FromEnvironment();
};

}  // namespace slotwise

#endif  // SLOTWISE_CREDENTIALS_H_
