// OpenCalls bounds how many calls are open: on a connection, and on all connections of a process.
//
// A call is a stream of HTTP/2, open from the first frame of its headers until both sides have ended it or
// one has reset it. For that long gRPC's library keeps 12 KB, and 165 bytes for each field of metadata, 50 KB
// at most, whether a message came or not. gRPC 1.51 bounds a connection's streams only once its peer has
// acknowledged the server's SETTINGS, which a peer may never do, and those of all connections not at all.
// Thread-safety: SharedCalls, any thread; OpenCalls, one thread at a time.
#ifndef SLOTWISE_SERVER_RPC_OPEN_CALLS_H_
#define SLOTWISE_SERVER_RPC_OPEN_CALLS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace slotwise {

// What the connections of a process share. Half of all calls are kept for the first few of each connection,
// as many as there are for all connections alike, so no client can keep others from those. A connection's
// further calls come out of the other half. No connection may have more of them than are left there: so
// however many take as many as they can, each newcomer finds room for as many.
class SharedCalls {
 public:
  // REQUIRES: at least one connection. Calls that are open count by the first() that held when their
  // connection came.
  void Limit(std::uint64_t most, std::uint64_t connections);

  std::uint64_t most() const { return most_; }
  // How many of a connection's calls are its first: 1 at least, though there may be fewer for each then.
  std::uint64_t first() const { return first_; }
  std::uint64_t open() const { return open_.load().all; }

  // Each opens a call, and returns false if there is no room for it.
  bool OpenFirst();
  // REQUIRES: the connection has `own` further calls.
  bool OpenFurther(std::uint64_t own);
  // Closes calls, among which there are so many further ones.
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

// The open calls of one connection. Its end closes them.
class OpenCalls {
 public:
  enum class Opened { kYes, kTooManyOfConnection, kTooManyOfAll };

  // At most `most` may be open. `shared` outlives the object.
  OpenCalls(SharedCalls& shared, std::uint64_t most) : shared_(shared), most_(most), first_(shared.first()) {}
  ~OpenCalls() { CloseAll(); }
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // REQUIRES: no stream with this number or a higher one was opened.
  Opened Open(std::uint32_t stream);
  // The client, or the server, says nothing more on the stream. Of streams that are not open nothing happens.
  void EndByClient(std::uint32_t stream) { End(stream, &Call::client_ended); }
  void EndByServer(std::uint32_t stream) { End(stream, &Call::server_ended); }
  // Either has reset the stream.
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
