// Meters what clients' connections receive, as gRPC reads it, and ends the connections that pass a bound
// (frame_meter.h).
//
// gRPC has no place between a connection's socket and its own reading of frames. So this room defines the C
// library's recvmsg, through which gRPC reads: it calls the C library's own, shows the bytes to the
// connection's meter, and where a bound is passed, says ECONNRESET, and gRPC ends the connection before it
// has seen those bytes. It defines sendmsg too, and shows the meter what gRPC has sent, which ends calls; and
// close, which ends the meter, because gRPC may close a connection without reading its end. For all other
// descriptors the three do what the C library's do. Of connections by TLS it defines OpenSSL's SSL_read and
// SSL_write, in the same way: what was decrypted, and will be encrypted, is metered.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_RECEIVED_FRAMES_H_
#define SLOTWISE_SERVER_RPC_RECEIVED_FRAMES_H_

#include <cstdint>

namespace slotwise {

// Descriptors that are metered have lower numbers.
inline constexpr int kMostMetered = 1 << 20;

// Says how many calls may be open, on a connection and on all that are metered, of which there are so many
// (open_calls.h). A connection keeps what held when it came; the bound of all holds at once.
void LimitOpenCalls(std::uint64_t of_connection, std::uint64_t of_all, std::uint64_t connections);

// Meters a connected socket of a client from now on, until the connection ends. Returns false if its number
// is too high.
// REQUIRES: the socket was not read from or written to, and only gRPC will. It does not block, and has
// no other descriptor. It is closed by close, not by dup2, say, nor in a signal's handler: close takes a
// mutex.
bool MeterFrames(int socket);

// Returns how many bytes of metered connections have been read.
std::uint64_t MeteredBytes();

// Returns how many calls of metered connections are open.
std::uint64_t OpenMeteredCalls();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_RECEIVED_FRAMES_H_
