// TcpPeer moves bytes over loopback connections and does nothing else. It is the yardstick for a transport
// over TCP.
//
// Thread-safety: one thread at a time. The destructor ends the peer's threads.
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

  // Makes `requests` exchanges, evenly over the connections, and one after the other on each. An exchange
  // sends `request_bytes` to a thread that reads them all, and receives `reply_bytes`. Returns when all are
  // received.
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
