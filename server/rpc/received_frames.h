// Meters the bytes of clients' connections as gRPC reads them, and ends the connections that exceed a bound
// (frame_meter.h).
//
// gRPC has no hook between a connection's socket and its own reading of frames. So this room defines the C
// library's recvmsg, through which gRPC reads. It calls the C library's own, shows the bytes to the
// connection's meter, and returns ECONNRESET if a bound is exceeded, so gRPC ends the connection before it
// has seen those bytes. It also defines sendmsg, to show the meter gRPC's own frames, which end calls; and
// close, to end the meter, because gRPC may close a connection without reading its end. For all other
// descriptors the three behave as in the C library. For TLS connections it defines OpenSSL's SSL_read and
// SSL_write in the same way, and meters decrypted bytes.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_RECEIVED_FRAMES_H_
#define SLOTWISE_SERVER_RPC_RECEIVED_FRAMES_H_

#include <cstdint>

namespace slotwise {

// Only descriptors below this number are metered.
inline constexpr int kMostMetered = 1 << 20;

// Sets the limits on open calls: of each connection, and of all metered connections, of which there are at
// most `connections` (open_calls.h). Open connections keep their limit; the limit of all applies at once.
void LimitOpenCalls(std::uint64_t of_connection, std::uint64_t of_all, std::uint64_t connections);

// Meters a client's connected socket until the connection ends. Returns false if the descriptor is too high.
// REQUIRES: the socket was not read from or written to, and only gRPC will do so. It is non-blocking, and has
// no other descriptor. It is closed by close (not by dup2, for example), and not in a signal handler, because
// close takes a mutex.
bool MeterFrames(int socket);

// Returns how many bytes of metered connections have been read.
std::uint64_t MeteredBytes();

// Returns how many calls of metered connections are open.
std::uint64_t OpenMeteredCalls();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_RECEIVED_FRAMES_H_
