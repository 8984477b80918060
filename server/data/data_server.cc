#include "server/data/data_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "server/data/data_connection.h"
#include "server/intake/peer_name.h"
#include "wire/busy_polling.h"
#include "wire/data_version.h"
#include "wire/frame_stream.h"
#include "wire/shared_memory.h"

namespace slotwise {
namespace {

using Socket = FrameStream::Socket;

std::size_t ThreadsFor(std::size_t asked) {
  if (asked > 0) return asked;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency() / 2, 1, 8);
}

}  // namespace

class DataServer::Impl {
 public:
  Impl(const DataOptions& options, Engine& engine, Gate& gate) : shared_(options, engine, gate) {
    const std::size_t threads = ThreadsFor(options.threads);
    for (std::size_t i = 0; i < threads; ++i) {
      workers_.emplace_back();
      Worker& worker = workers_.back();
      worker.thread = std::thread([&worker] { worker.loop.Run(); });
    }
  }

  ~Impl() { Stop(); }

  void Take(int socket, std::function<void(int)> others) {
    BusyPolling& loop = workers_[turn_++ % workers_.size()].loop;
    const auto hello = std::make_shared<Hello>(*this, loop, socket, std::move(others));
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;  // closes the socket
      hello->place = hellos_.insert(hellos_.end(), hello);
    }
    asio::post(loop.context(), [hello] { hello->Begin(); });
  }

  DataLoad Load() {
    const std::lock_guard lock(mutex_);
    return {.connections = connections_.size(),
            .received_bytes = shared_.received.used(),
            .max_received_bytes = shared_.received.limit(),
            .shared_bytes = shared_.shared_buffers.shared_bytes(),
            .max_shared_bytes = shared_.shared_buffers.max_shared_bytes(),
            .device_shared_buffer_bytes = shared_.shared_buffers.device_bytes(),
            .max_device_shared_bytes = shared_.shared_buffers.max_device_bytes()};
  }

  void Stop() {
    // Connections end outside the lock, because the end of a connection takes the lock.
    std::vector<std::shared_ptr<DataConnection>> connections;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(stopping_, true)) return;
      shared_.stopping = true;
      for (const auto& hello : hellos_) asio::post(hello->socket.get_executor(), [hello] { hello->Close(); });
      for (const auto& connection : connections_) {
        if (auto alive = connection.lock()) connections.push_back(std::move(alive));
      }
    }
    for (const auto& connection : connections) connection->End("the server is stopping");
    connections.clear();
    {
      // The engine answers its remaining requests, and each answer releases its connection.
      std::unique_lock lock(mutex_);
      gone_.wait(lock, [this] { return hellos_.empty() && connections_.empty(); });
    }
    for (Worker& worker : workers_) {
      worker.work.reset();
      worker.thread.join();
    }
  }

 private:
  struct Worker {
    BusyPolling loop;
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work{
        loop.context().get_executor()};
    std::thread thread;
  };

  // A connection before both prefaces are exchanged. Its worker's thread uses all members but `place`.
  struct Hello : std::enable_shared_from_this<Hello> {
    Hello(Impl& its_server, BusyPolling& its_loop, int descriptor, std::function<void(int)> takes_others)
        : server(its_server),
          loop(its_loop),
          socket(its_loop.context()),
          timer(its_loop.context()),
          others(std::move(takes_others)) {
      sockaddr_storage address{};
      socklen_t size = sizeof(address);
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
      local = address.ss_family == AF_UNIX;
      asio::error_code error;
      socket.assign({address.ss_family, 0}, descriptor, error);
      if (error) close(descriptor);
    }

    void Begin() {
      timer.expires_after(server.shared_.options.hello_timeout);
      timer.async_wait([self = shared_from_this()](const asio::error_code& error) {
        if (!error) self->Close();
      });
      socket.async_wait(Socket::wait_read, [self = shared_from_this()](const asio::error_code& error) {
        if (error) return self->Close();
        self->Sort();
      });
    }

    void Sort() {
      char first = 0;
      if (recv(socket.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return Close();
      if (first != kDataMagic.front()) {
        if (local) return Close();
        asio::error_code error;
        const int descriptor = socket.release(error);
        Leave();
        if (error) return;
        return others(descriptor);
      }
      asio::async_read(socket, asio::buffer(preface),
                       [self = shared_from_this()](const asio::error_code& error, std::size_t) {
                         error ? self->Close() : self->Answer();
                       });
    }

    void Answer() {
      const auto version = VersionIn(preface);
      const AskedSharedBuffer asked = SharedBufferIn(preface);
      if (!version || (asked.mib > 0 && !local)) return Close();
      if (*version == kDataVersion && asked.mib > 0) {
        ClientSharedBuffers& shared_buffers = server.shared_.shared_buffers;
        shared_buffer = asked.on_device ? shared_buffers.MakeOnDevice(asked.mib, socket.native_handle())
                                        : shared_buffers.Make(asked.mib);
      }
      preface = MakePreface(kDataVersion, {shared_buffer ? shared_buffer->mib() : 0,
                                           shared_buffer && shared_buffer->on_device});
      if (shared_buffer) {
        // A new connection's send buffer has room for these few bytes.
        const ssize_t sent = SendWithDescriptor(socket.native_handle(), preface, shared_buffer->descriptor);
        return sent == static_cast<ssize_t>(preface.size()) ? server.Serve(*this) : Close();
      }
      asio::async_write(socket, asio::buffer(preface),
                        [self = shared_from_this(), known = *version == kDataVersion](
                            const asio::error_code& error, std::size_t) {
                          error || !known ? self->Close() : self->server.Serve(*self);
                        });
    }

    void Close() {
      asio::error_code ignored;
      socket.close(ignored);
      Leave();
    }

    void Leave() {
      timer.cancel();
      const std::lock_guard lock(server.mutex_);
      if (!place) return;
      server.hellos_.erase(*std::exchange(place, std::nullopt));
      server.gone_.notify_all();
    }

    Impl& server;
    BusyPolling& loop;
    Socket socket;
    asio::steady_timer timer;
    std::function<void(int)> others;
    Preface preface{};
    bool local = false;  // a Unix socket
    std::shared_ptr<ClientSharedBuffer> shared_buffer;
    std::optional<std::list<std::shared_ptr<Hello>>::iterator> place;  // guarded by mutex_
  };

  void Serve(Hello& hello) {
    if (!hello.socket.is_open()) return;  // closed after its answer
    const std::string peer = PeerName(hello.socket.native_handle());
    std::list<std::weak_ptr<DataConnection>>::iterator place;
    {
      const std::lock_guard lock(mutex_);
      place = connections_.emplace(connections_.end());
    }
    const std::shared_ptr<void> token(nullptr, [this, place](void*) {
      const std::lock_guard lock(mutex_);
      connections_.erase(place);
      gone_.notify_all();
    });
    const auto connection = std::make_shared<DataConnection>(
        std::move(hello.socket), peer, shared_, std::move(hello.shared_buffer), hello.loop, token);
    hello.Leave();
    bool stopping = false;
    {
      const std::lock_guard lock(mutex_);
      *place = connection;
      stopping = stopping_;
    }
    connection->Start();
    if (stopping) connection->End("the server is stopping");
  }

  DataShared shared_;
  std::deque<Worker> workers_;
  std::atomic<std::size_t> turn_ = 0;
  std::mutex mutex_;
  std::condition_variable gone_;
  // Guarded by mutex_:
  bool stopping_ = false;
  std::list<std::shared_ptr<Hello>> hellos_;
  std::list<std::weak_ptr<DataConnection>> connections_;
};

DataServer::DataServer(const DataOptions& options, Engine& engine, Gate& gate)
    : impl_(std::make_unique<Impl>(options, engine, gate)) {}
DataServer::~DataServer() = default;

void DataServer::Take(int socket, std::function<void(int socket)> others) {
  impl_->Take(socket, std::move(others));
}
DataLoad DataServer::Load() const { return impl_->Load(); }
void DataServer::Stop() { impl_->Stop(); }

}  // namespace slotwise
