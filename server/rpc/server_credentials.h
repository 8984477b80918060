// Makes the credentials of gRPC's server. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_
#define SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/access/tls_files.h"
#include "slotwise/status.h"

namespace slotwise {

// Returns insecure credentials if there are no files. Else a thread, which ends with the credentials, checks
// the files every second and uses them when they have changed and are right; a connection keeps those of its
// beginning. Fails as ReadTlsFiles does.
// REQUIRES: with files, only one thread at a time gives a server new connections. gRPC 1.51 takes new
// certificates at a connection's start, without a lock between two connections.
Result<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(const TlsFiles& files);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_
