// DataConnecting makes a client's connection of the data transport: it resolves the address, connects (by the
// rank's Unix socket if that is on this host), and checks that the peer speaks this transport.
// Thread-safety: the io_context's thread.
#ifndef SLOTWISE_CLIENT_CPP_DATA_CONNECTING_H_
#define SLOTWISE_CLIENT_CPP_DATA_CONNECTING_H_

#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "client/cpp/gpu_shared_buffer.h"
#include "client/cpp/rank_address.h"
#include "slotwise/status.h"
#include "wire/data_version.h"
#include "wire/shared_memory.h"

namespace slotwise::client {

class DataConnecting : public std::enable_shared_from_this<DataConnecting> {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  struct Made {
    Socket socket;
    std::shared_ptr<SharedMemory> shared_buffer = nullptr;  // null: there is none
    std::shared_ptr<GpuSharedBuffer> gpu = nullptr;         // set if the address has by_gpu
  };
  // Called once, with the connection or an error. UNAVAILABLE names the reason, and another try may help. Any
  // other code is final: the device's memory cannot be shared.
  using Done = std::function<void(Result<Made>)>;

  // `address` has a host:port, or [IPv6]:port.
  DataConnecting(asio::io_context& context, RankAddress address, Done done);

  // REQUIRES: called once.
  void Begin();
  // Gives up, unless connecting is over. The first form ends with UNAVAILABLE.
  void Fail(const std::string& why) { Fail(Unavailable(why)); }
  void Fail(Status why);

 private:
  AskedSharedBuffer AskFor() const;
  bool ConnectLocally();
  void ConnectByTcp();
  void Greet();
  void Hear();
  void HearLocally();  // and takes the shared buffer
  // Takes over the descriptor of shared memory that the preface describes.
  Status TakeSharedBuffer(int descriptor);
  void Meet();
  void End(Result<Made> result);

  const RankAddress address_;
  Done done_;  // empty once called
  asio::ip::tcp::resolver resolver_;
  asio::ip::tcp::socket tcp_;
  Socket socket_;  // once it is connected
  bool local_ = false;
  asio::steady_timer timer_;
  Preface preface_{};
  std::size_t heard_ = 0;  // bytes of the preface that have come
  std::shared_ptr<SharedMemory> shared_buffer_;
  std::shared_ptr<GpuSharedBuffer> gpu_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DATA_CONNECTING_H_
