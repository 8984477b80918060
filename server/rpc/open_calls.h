// OpenCalls bounds how many calls are open: on a connection, and on all connections of a process.
//
// A call is a stream of HTTP/2, open from the first frame of its headers until both sides have ended it or
// one has reset it. For that long gRPC's library keeps some 20 KB, whether a message came or not. gRPC 1.51
// bounds a connection's streams only once its peer has acknowledged the server's SETTINGS, which a peer may
// never do, and those of all connections not at all.
// Thread-safety: SharedCalls, any thread; OpenCalls, one thread at a time.
#ifndef SLOTWISE_SERVER_RPC_OPEN_CALLS_H_
#define SLOTWISE_SERVER_RPC_OPEN_CALLS_H_

#include <atomic>
#include <cstdint>
#include <vector>

namespace slotwise {

// What the connections of a process share. No connection may have more open calls than are left for all: so
// however many take as many as they can, each newcomer finds room for as many.
class SharedCalls {
 public:
  void SetMost(std::uint64_t most) { most_ = most; }
  std::uint64_t most() const { return most_; }
  std::uint64_t open() const { return open_; }

  // Opens a call of a connection that has `own` open. Returns false if there is no room for it.
  bool Open(std::uint64_t own);
  void Close(std::uint64_t calls) { open_ -= calls; }

 private:
  std::atomic<std::uint64_t> most_ = 16'384;
  std::atomic<std::uint64_t> open_ = 0;
};

// The open calls of one connection. Its end closes them.
class OpenCalls {
 public:
  enum class Opened { kYes, kTooManyOfConnection, kTooManyOfAll };

  // At most `most` may be open. `shared` outlives the object.
  OpenCalls(SharedCalls& shared, std::uint64_t most) : shared_(shared), most_(most) {}
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

  Calls::iterator Find(std::uint32_t stream);
  void End(std::uint32_t stream, bool Call::*ended);
  void Close(Calls::iterator call);

  SharedCalls& shared_;
  const std::uint64_t most_;
  Calls calls_;  // by stream
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_OPEN_CALLS_H_
