// Checks the Unix socket of a rank on this host before a client uses it: which user's process listens there,
// and whether the server admits this process.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_LOCAL_SOCKET_H_
#define SLOTWISE_CLIENT_CPP_LOCAL_SOCKET_H_

#include <cstdint>
#include <string>

namespace slotwise::client {

// Returns whether the process at the other end of a connected Unix socket runs as `user`.
bool IsUsers(int socket, std::uint32_t user);

// Returns whether a process of `user` listens at the socket `name` (of the abstract namespace) and speaks the
// data transport with this process. Waits at most a second, and only if a process listens there.
bool ServesLocally(const std::string& name, std::uint32_t user);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_LOCAL_SOCKET_H_
