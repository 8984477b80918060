#include "bench/peers/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace slotwise::bench {
namespace {

int Checked(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

bool Read(int socket, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t came = recv(socket, to, size, 0);
    if (came <= 0) return false;
    to += came;
    size -= static_cast<std::size_t>(came);
  }
  return true;
}

bool Write(int socket, const char* from, std::size_t size) {
  while (size > 0) {
    const ssize_t went = send(socket, from, size, MSG_NOSIGNAL);
    if (went <= 0) return false;
    from += went;
    size -= static_cast<std::size_t>(went);
  }
  return true;
}

}  // namespace

TcpPeer::TcpPeer(std::size_t connections) : connections_(connections) {
  const int listening = Checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  Checked(bind(listening, any, size), "bind");
  Checked(listen(listening, SOMAXCONN), "listen");
  Checked(getsockname(listening, any, &size), "getsockname");
  for (Connection& connection : connections_) {
    connection.near = Checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    Checked(connect(connection.near, any, size), "connect");
    connection.far = Checked(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC), "accept");
    const int yes = 1;
    setsockopt(connection.near, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(connection.far, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    connection.answers = std::thread([far = connection.far] { Answer(far); });
  }
  close(listening);
}

TcpPeer::~TcpPeer() {
  for (Connection& connection : connections_) {
    shutdown(connection.near, SHUT_RDWR);
    connection.answers.join();
    close(connection.near);
    close(connection.far);
  }
}

// Answers exchanges until the connection ends: reads two lengths and the request, and writes the reply.
void TcpPeer::Answer(int far) {
  std::vector<char> request;
  std::vector<char> reply;
  std::array<std::uint64_t, 2> sizes{};
  while (Read(far, reinterpret_cast<char*>(sizes.data()), sizeof(sizes))) {
    request.resize(sizes[0]);
    reply.resize(sizes[1]);
    if (!Read(far, request.data(), request.size()) || !Write(far, reply.data(), reply.size())) return;
  }
}

void TcpPeer::Exchange(std::size_t requests, std::size_t request_bytes, std::size_t reply_bytes) {
  std::vector<std::thread> threads;
  std::vector<char> failed(connections_.size());
  for (std::size_t c = 0; c < connections_.size(); ++c) {
    threads.emplace_back([&, c] {
      const int near = connections_[c].near;
      std::vector<char> bytes(sizeof(std::array<std::uint64_t, 2>) + request_bytes);
      std::vector<char> reply(reply_bytes);
      const std::array<std::uint64_t, 2> sizes{request_bytes, reply_bytes};
      std::memcpy(bytes.data(), sizes.data(), sizeof(sizes));
      for (std::size_t r = c; r < requests; r += connections_.size()) {
        if (Write(near, bytes.data(), bytes.size()) && Read(near, reply.data(), reply.size())) continue;
        failed[c] = 1;
        return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char one : failed) {
    if (one != 0) throw std::runtime_error("a bare connection was lost");
  }
}

}  // namespace slotwise::bench
