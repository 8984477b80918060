// TcpPeer moves bytes over connections of this machine with nothing around them: what any transport over TCP
// is to be measured by.
//
// Thread-safety: one thread at a time. Its threads end with the object.
#ifndef SLOTWISE_BENCH_PEERS_TCP_H_
#define SLOTWISE_BENCH_PEERS_TCP_H_

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

namespace slotwise::bench {

class TcpPeer {
 public:
  // Throws std::system_error if there are no sockets.
  explicit TcpPeer(std::size_t connections);
  ~TcpPeer();
  TcpPeer(const TcpPeer&) = delete;
  TcpPeer& operator=(const TcpPeer&) = delete;

  // Makes `requests` exchanges, as many on each connection, one behind the other there: so many bytes go to a
  // thread that reads them all, and so many come back. Returns when all have come.
  void Exchange(std::size_t requests, std::size_t request_bytes, std::size_t reply_bytes);

 private:
  struct Connection {
    int near = -1;
    int far = -1;
    std::thread answers;
  };
  static void Answer(int far);

  std::vector<Connection> connections_;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_PEERS_TCP_H_
