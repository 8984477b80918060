#include "client/cpp/data_connecting.h"

#include <asio/connect.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <utility>

namespace slotwise::client {
namespace {

constexpr std::chrono::seconds kConnectLimit{3};

std::pair<std::string, std::string> HostAndPort(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

}  // namespace

DataConnecting::DataConnecting(asio::io_context& context, std::string address, Done done)
    : address_(std::move(address)),
      done_(std::move(done)),
      resolver_(context),
      socket_(context),
      timer_(context) {}

void DataConnecting::Begin() {
  timer_.expires_after(kConnectLimit);
  timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->Fail("no connection within " + std::to_string(kConnectLimit.count()) + " s");
  });
  const auto [host, port] = HostAndPort(address_);
  const auto connect = [self = shared_from_this()](const asio::error_code& error,
                                                   const asio::ip::tcp::resolver::results_type& found) {
    if (error) return self->Fail(error.message());
    asio::async_connect(self->socket_, found,
                        [self](const asio::error_code& failed, const asio::ip::tcp::endpoint&) {
                          failed ? self->Fail(failed.message()) : self->Greet();
                        });
  };
  resolver_.async_resolve(host, port, connect);
}

void DataConnecting::Greet() {
  asio::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  preface_ = MakePreface(kDataVersion);
  const auto hear = [self = shared_from_this()](const asio::error_code& error, std::size_t) {
    if (error) return self->Fail(error.message());
    asio::async_read(self->socket_, asio::buffer(self->preface_),
                     [self](const asio::error_code& failed, std::size_t) {
                       failed ? self->Fail(failed.message()) : self->Meet();
                     });
  };
  asio::async_write(socket_, asio::buffer(preface_), hear);
}

void DataConnecting::Meet() {
  const auto version = VersionIn(preface_);
  if (!version) return Fail("what answers there does not speak Slotwise's data transport");
  if (*version != kDataVersion) {
    return Fail("it speaks version " + std::to_string(*version) + " of the data transport, not " +
                std::to_string(kDataVersion));
  }
  if (done_) End(std::move(socket_));
}

void DataConnecting::Fail(const std::string& why) {
  if (!done_) return;
  resolver_.cancel();
  asio::error_code ignored;
  socket_.close(ignored);
  End(Unavailable(why));
}

void DataConnecting::End(Result<asio::ip::tcp::socket> result) {
  timer_.cancel();
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace slotwise::client
