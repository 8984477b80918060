// Says in words why a server could not listen, because gRPC says only that the server could not.
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_BIND_ERROR_H_
#define SLOTWISE_SERVER_RPC_BIND_ERROR_H_

#include <cstdint>
#include <string>

namespace slotwise {

// Tries to listen at host:port as gRPC has just done, and returns the operating system's reason for the
// failure.
std::string BindError(const std::string& host, std::uint16_t port);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_BIND_ERROR_H_
