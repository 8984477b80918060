// The Unix socket of a rank on this host, where the server asks who calls: whose process answers there, and
// whether it lets this process in.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_LOCAL_SOCKET_H_
#define SLOTWISE_CLIENT_CPP_LOCAL_SOCKET_H_

#include <cstdint>
#include <string>

namespace slotwise::client {

// Returns whether the other end of a connected Unix socket is a process of `user`, as the system says.
bool IsUsers(int socket, std::uint32_t user);

// Returns whether a process of `user` answers at the socket, a name of the abstract namespace, and speaks the
// data transport with this process. Waits for at most a second, and only if somebody listens there.
bool ServesLocally(const std::string& name, std::uint32_t user);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_LOCAL_SOCKET_H_
