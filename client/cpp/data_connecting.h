// DataConnecting: a client's connection of the data transport while it is being made: it finds the address,
// connects, and hears that what answers there speaks this transport.
// Thread-safety: the io_context's thread.
#ifndef SLOTWISE_CLIENT_CPP_DATA_CONNECTING_H_
#define SLOTWISE_CLIENT_CPP_DATA_CONNECTING_H_

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "slotwise/status.h"
#include "wire/data_version.h"

namespace slotwise::client {

class DataConnecting : public std::enable_shared_from_this<DataConnecting> {
 public:
  // Hears once that the connection is there, or UNAVAILABLE, with the reason.
  using Done = std::function<void(Result<asio::ip::tcp::socket>)>;

  // `address` is host:port, or [IPv6]:port.
  DataConnecting(asio::io_context& context, std::string address, Done done);

  // REQUIRES: once.
  void Begin();
  // Gives up, unless it is over.
  void Fail(const std::string& why);

 private:
  void Greet();
  void Meet();
  void End(Result<asio::ip::tcp::socket> result);

  const std::string address_;
  Done done_;  // empty once it was called
  asio::ip::tcp::resolver resolver_;
  asio::ip::tcp::socket socket_;
  asio::steady_timer timer_;
  Preface preface_{};
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DATA_CONNECTING_H_
