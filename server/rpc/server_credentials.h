// The credentials of gRPC's server. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_
#define SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/access/tls_files.h"
#include "slotwise/status.h"

namespace slotwise {

// Without files: none. Files are looked at every second, by a thread that ends with the credentials, and
// taken when they have changed and are right; a connection keeps what it began with. Fails as ReadTlsFiles
// does.
// REQUIRES: with files, one thread at a time gives a server new connections. gRPC 1.51 takes new certificates
// at a connection's start, and what it takes there is not locked against another one's.
Result<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(const TlsFiles& files);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_
