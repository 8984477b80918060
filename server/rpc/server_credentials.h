// The credentials of gRPC's server. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_
#define SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/access/tls_files.h"

namespace slotwise {

// Without files: none. Files are looked at every second, and read again when they change; a connection keeps
// what it began with. REQUIRES: CheckTlsFiles found nothing.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_SERVER_CREDENTIALS_H_
