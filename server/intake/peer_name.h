// Names the peers of sockets as gRPC names them. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_INTAKE_PEER_NAME_H_
#define SLOTWISE_SERVER_INTAKE_PEER_NAME_H_

#include <string>

namespace slotwise {

// Returns "ipv4:10.0.0.1:12345" or "ipv6:[::1]:12345"; "a connection" if the socket has no such peer.
std::string PeerName(int socket);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_PEER_NAME_H_
