// OpenCalls limits the open calls of a connection and of all connections of a process.
//
// A call is an HTTP/2 stream, open from the first frame of its headers until both sides have ended it or one
// has reset it. Meanwhile gRPC keeps 12 KB, and 165 bytes for each field of metadata, at most 50 KB, even if
// no message has come. gRPC 1.51 limits a connection's streams only once the peer has acknowledged the
// server's SETTINGS, which a peer may never do. It does not limit the streams of all connections together.
// Thread-safety: SharedCalls, any thread; OpenCalls, one thread at a time.
#ifndef SLOTWISE_SERVER_RPC_OPEN_CALLS_H_
#define SLOTWISE_SERVER_RPC_OPEN_CALLS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace slotwise {

// The calls of all connections of a process. Half of the limit is reserved for the first few calls of each
// connection, equally many for each, so no client can take those from others. A connection's further calls
// come out of the other half, and no connection may have more of them than are left there. So even if many
// connections take as many as they can, a new one can have as many as are left.
class SharedCalls {
 public:
  // REQUIRES: at least one connection. Open calls of an existing connection keep the first() of its
  // beginning.
  void Limit(std::uint64_t most, std::uint64_t connections);

  std::uint64_t most() const { return most_; }
  // Returns how many of a connection's calls count as its first: at least 1, even if not all can have one.
  std::uint64_t first() const { return first_; }
  std::uint64_t open() const { return open_.load().all; }

  // These two open a call, or return false if there is no room for it.
  bool OpenFirst();
  // `own` is the number of further calls that the connection has.
  bool OpenFurther(std::uint64_t own);
  // Closes `calls` calls, `further` of which are further ones.
  void Close(std::uint64_t calls, std::uint64_t further);

 private:
  struct Calls {
    std::uint32_t all;
    std::uint32_t further;
  };

  std::atomic<std::uint64_t> most_ = 16'384;
  std::atomic<std::uint64_t> first_ = 2;
  std::atomic<Calls> open_{Calls{0, 0}};
};

// The open calls of one connection. The destructor closes them.
class OpenCalls {
 public:
  enum class Opened { kYes, kTooManyOfConnection, kTooManyOfAll };

  // At most `most` calls may be open. `shared` outlives this object.
  OpenCalls(SharedCalls& shared, std::uint64_t most) : shared_(shared), most_(most), first_(shared.first()) {}
  ~OpenCalls() { CloseAll(); }
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // REQUIRES: no stream with this number or a higher one was opened before.
  Opened Open(std::uint32_t stream);
  // These two note that one side sends nothing more on the stream. They ignore streams that are not open.
  void EndByClient(std::uint32_t stream) { End(stream, &Call::client_ended); }
  void EndByServer(std::uint32_t stream) { End(stream, &Call::server_ended); }
  // Closes a stream that either side has reset.
  void Reset(std::uint32_t stream);
  void CloseAll();

  std::uint64_t open() const { return calls_.size(); }

 private:
  struct Call {
    std::uint32_t stream;
    bool client_ended = false;
    bool server_ended = false;
  };
  using Calls = std::vector<Call>;

  std::uint64_t further() const { return open() - std::min(open(), first_); }
  Calls::iterator Find(std::uint32_t stream);
  void End(std::uint32_t stream, bool Call::*ended);
  void Close(Calls::iterator call);

  SharedCalls& shared_;
  const std::uint64_t most_;
  const std::uint64_t first_;
  Calls calls_;  // by stream
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_OPEN_CALLS_H_
