#include "client/cpp/data_connecting.h"

#include <unistd.h>

#include <asio/connect.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "client/cpp/local_socket.h"

namespace slotwise::client {
namespace {

constexpr std::chrono::seconds kConnectLimit{3};
// Requests are cut to a few MiB; each connection has a few of them in flight.
constexpr std::uint64_t kSharedBuffer = std::uint64_t{32} << 20;

std::pair<std::string, std::string> HostAndPort(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

}  // namespace

DataConnecting::DataConnecting(asio::io_context& context, RankAddress address, Done done)
    : address_(std::move(address)),
      done_(std::move(done)),
      resolver_(context),
      tcp_(context),
      socket_(context),
      timer_(context) {}

AskedSharedBuffer DataConnecting::AskFor() const {
  // Asks for as much of a device's memory as the server gives one client.
  if (address_.by_gpu) return {kMostSharedBufferMib, true};
  return {local_ && address_.shares_host ? static_cast<std::uint32_t>(kSharedBuffer >> 20) : 0};
}

void DataConnecting::Begin() {
  timer_.expires_after(kConnectLimit);
  timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->Fail("no connection within " + std::to_string(kConnectLimit.count()) + " s");
  });
  const bool shares = address_.shares_host || address_.by_gpu || address_.only_user;
  if (shares && !address_.local.empty() && ConnectLocally()) return Greet();
  const std::string nobody =
      "there is no server on this host that shares memory with this user (one with principals asks for a "
      "token, and for a user whom security.local_users names)";
  if (address_.only_local || (address_.by_gpu && address_.only_gpu)) return Fail(nobody);
  if (address_.by_gpu) return Fail(ResourceExhausted(nobody));  // the caller goes another way at once
  if (address_.only_user) return Fail("nobody whom the server knows answers at its Unix socket");
  ConnectByTcp();
}

// A listening server accepts at once, so this never waits for a connection.
bool DataConnecting::ConnectLocally() {
  asio::error_code error;
  asio::local::stream_protocol::socket socket(tcp_.get_executor());
  socket.open(asio::local::stream_protocol(), error);
  if (!error) socket.non_blocking(true, error);
  if (!error) socket.native_non_blocking(true, error);
  if (!error)
    socket.connect(asio::local::stream_protocol::endpoint(std::string(1, 0) + address_.local), error);
  if (error) return false;
  // Another process may have taken the name of a server that is gone.
  if (address_.only_user && !IsUsers(socket.native_handle(), *address_.only_user)) return false;
  local_ = true;
  socket_ = std::move(socket);
  return true;
}

void DataConnecting::ConnectByTcp() {
  const auto [host, port] = HostAndPort(address_.address);
  const auto connect = [self = shared_from_this()](const asio::error_code& error,
                                                   const asio::ip::tcp::resolver::results_type& found) {
    if (error) return self->Fail(error.message());
    asio::async_connect(self->tcp_, found,
                        [self](const asio::error_code& failed, const asio::ip::tcp::endpoint&) {
                          if (failed) return self->Fail(failed.message());
                          asio::error_code ignored;
                          self->tcp_.set_option(asio::ip::tcp::no_delay(true), ignored);
                          self->socket_ = std::move(self->tcp_);
                          self->Greet();
                        });
  };
  resolver_.async_resolve(host, port, connect);
}

void DataConnecting::Greet() {
  preface_ = MakePreface(kDataVersion, AskFor());
  const auto hear = [self = shared_from_this()](const asio::error_code& error, std::size_t) {
    if (error) return self->Fail(error.message());
    self->local_ ? self->HearLocally() : self->Hear();
  };
  asio::async_write(socket_, asio::buffer(preface_), hear);
}

void DataConnecting::Hear() {
  asio::async_read(socket_, asio::buffer(preface_),
                   [self = shared_from_this()](const asio::error_code& error, std::size_t) {
                     error ? self->Fail(error.message()) : self->Meet();
                   });
}

void DataConnecting::HearLocally() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const asio::error_code& error) {
    if (error) return self->Fail(error.message());
    int descriptor = -1;
    const auto room = std::span(self->preface_).subspan(self->heard_);
    const ssize_t size = ReceiveWithDescriptor(self->socket_.native_handle(), room, descriptor);
    if (size == 0) return self->Fail("the connection was closed");
    if (size < 0 && errno != EAGAIN) return self->Fail(std::strerror(errno));
    if (descriptor >= 0) {
      // The descriptor comes with the first bytes; the preface gives the size of its memory.
      if (self->heard_ + static_cast<std::size_t>(size) < self->preface_.size()) {
        close(descriptor);
        return self->Fail("the server sent a descriptor with part of its preface");
      }
      if (Status taken = self->TakeSharedBuffer(descriptor); !taken.ok()) return self->Fail(std::move(taken));
    }
    if (size > 0) self->heard_ += static_cast<std::size_t>(size);
    self->heard_ < self->preface_.size() ? self->HearLocally() : self->Meet();
  });
}

Status DataConnecting::TakeSharedBuffer(int descriptor) {
  const AskedSharedBuffer given = SharedBufferIn(preface_);
  const std::uint64_t bytes = std::uint64_t{given.mib} << 20;
  if (given.on_device != address_.by_gpu) {
    close(descriptor);
    return Unavailable("the server shares memory of another kind than was asked for");
  }
  if (!given.on_device) {
    shared_buffer_ = SharedMemory::Open(descriptor, bytes);
    return shared_buffer_ ? Status() : Unavailable("the memory that the server shares cannot be mapped");
  }
  const auto access = DeviceAccess::Find(address_.gpu);
  if (!access.ok()) {
    close(descriptor);
    return access.status();
  }
  const auto memory = (*access)->Map(descriptor, bytes);
  if (!memory.ok()) return memory.status();
  gpu_ = std::make_shared<GpuSharedBuffer>(*access, *memory, bytes);
  return {};
}

void DataConnecting::Meet() {
  const auto version = VersionIn(preface_);
  if (!version) return Fail("what answers there does not speak Slotwise's data transport");
  if (*version != kDataVersion) {
    return Fail("it speaks version " + std::to_string(*version) + " of the data transport, not " +
                std::to_string(kDataVersion));
  }
  if (address_.only_local && !shared_buffer_) {
    return Fail("the server shares no more memory (limits.max_shared_mib)");
  }
  if (address_.by_gpu && !gpu_) {
    return Fail(
        ResourceExhausted("the server shares no more memory of its device (limits.max_gpu_shared_mib)"));
  }
  if (done_) End(Made{std::move(socket_), std::move(shared_buffer_), std::move(gpu_)});
}

void DataConnecting::Fail(Status why) {
  if (!done_) return;
  resolver_.cancel();
  asio::error_code ignored;
  tcp_.close(ignored);
  socket_.close(ignored);
  End(std::move(why));
}

void DataConnecting::End(Result<Made> result) {
  timer_.cancel();
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace slotwise::client
