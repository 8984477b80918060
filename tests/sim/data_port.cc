#include "tests/sim/data_port.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "kernels/backend/cpu.h"
#include "kernels/ingest_copy.inl"
#include "server/intake/find_table.h"

namespace slotwise::sim {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

DataOptions OptionsOf(std::uint32_t most_calls) {
  DataOptions options;
  options.max_calls_per_connection = most_calls;
  options.max_shared_bytes = 64 * kMib;
  options.max_device_shared_bytes = 64 * kMib;
  options.reply_timeout = std::chrono::milliseconds(0);  // no timers
  return options;
}

// What the launches of this thread's copy call. Backends have no state of their own.
thread_local const std::function<void()>* pause_of_copy = nullptr;

struct SteppedBackend : CpuBackend {
  template <class Index, class F>
  static void ForEach(Queue& /*queue*/, Index n, F f) {
    for (Index i = 0; i < n; ++i) {
      if (pause_of_copy != nullptr) (*pause_of_copy)();
      f(i);
    }
  }
};

// IngestCopy on a device that others write to in the middle of a copy: kernels/ingest_copy.inl on the CPU's
// backend, whose launches stop between their threads and call back. `pause` is called before each thread of a
// launch, and between launches.
class SteppedArrivals final : public IngestCopy {
 public:
  explicit SteppedArrivals(std::function<void()> pause) : pause_(std::move(pause)) {}

  std::shared_ptr<std::byte[]> Take(std::size_t bytes) override { return memory_->Take(bytes); }
  void Copy(std::span<const ArrivingArray> arrays, std::span<ArrivedArray> found) override {
    pause_of_copy = &pause_;
    on_steps_.Copy(arrays, found.data());
    pause_of_copy = nullptr;
    for (std::size_t i = 0; i < arrays.size(); ++i) found[i].words = HashedWords(arrays[i]);
  }
  void Download(void* to, const void* from, std::size_t bytes) override {
    pause_();
    std::memcpy(to, from, bytes);
  }

 private:
  const std::function<void()> pause_;
  const std::unique_ptr<IngestCopy> memory_ = MakeCpuIngestCopy();
  CpuQueue queue_{1};
  IngestCopyOn<SteppedBackend> on_steps_{queue_};
};

}  // namespace

bool PortConnection::HasEnded() const {
  struct stat file {};
  return fstat(servers_socket, &file) != 0 || file.st_ino != servers_file;
}

DataPort::DataPort(Engine& engine, std::uint32_t most_calls, std::function<void()> on_find,
                   std::function<void()> pause)
    : pause_(std::move(pause)),
      shared_(std::make_unique<DataShared>(OptionsOf(most_calls), engine, gate_,
                                           [&engine, on_find = std::move(on_find)](const Caller& caller) {
                                             return [&engine, &caller, on_find](std::string_view name,
                                                                                Rights needs) {
                                               on_find();
                                               return TableNamed(engine, caller, name, needs);
                                             };
                                           })) {
  gate_.Open();
}

DataPort::~DataPort() { Poll(); }

PortConnection DataPort::Connect(const std::string& name, bool on_device) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("no socketpair");
  PortConnection made;
  made.socket = ends[0];
  made.servers_socket = ends[1];
  struct stat file {};
  fstat(ends[1], &file);
  made.servers_file = file.st_ino;
  std::shared_ptr<ClientSharedBuffer> shared_buffer =
      on_device ? shared_->shared_buffers.MakeOnDevice(1, ends[1]) : shared_->shared_buffers.Make(1);
  if (shared_buffer == nullptr) throw std::runtime_error("no memory for a shared buffer");
  if (on_device) {
    shared_buffer->arrivals = std::make_unique<SteppedArrivals>(pause_);
    device_bytes_ += shared_buffer->bytes.size();
  }
  made.memory = SharedMemory::Open(dup(shared_buffer->descriptor), shared_buffer->bytes.size());
  made.servers_shared_buffer = shared_buffer;
  FrameStream::Socket socket(loop_.context());
  socket.assign({AF_UNIX, 0}, ends[1]);
  const auto connection = std::make_shared<DataConnection>(std::move(socket), name, *shared_,
                                                           std::move(shared_buffer), loop_, nullptr);
  connection->Start();
  made.servers = connection;
  connections_.push_back(connection);
  return made;
}

bool DataPort::Poll() {
  bool any = false;
  loop_.context().restart();  // it has stopped if it had no connection
  while (loop_.context().poll() > 0) any = true;
  return any;
}

void DataPort::Close() {
  shared_->stopping = true;
  Poll();
  for (const auto& connection : connections_) {
    if (const auto alive = connection.lock()) alive->End("the server is stopping");
  }
  Poll();
}

std::string DataPort::Leaks() {
  Poll();
  std::string leaks;
  const auto expect = [&](const char* what, std::uint64_t found, std::uint64_t expected) {
    if (found != expected) {
      leaks += std::string(leaks.empty() ? "" : ", ") + std::to_string(found) + " " + what + " instead of " +
               std::to_string(expected);
    }
  };
  std::uint64_t connections = 0;
  for (const auto& connection : connections_) connections += connection.expired() ? 0 : 1;
  expect("connections", connections, 0);
  expect("calls inside the gate", gate_.inside(), 0);
  expect("received bytes", shared_->received.used(), 0);
  expect("shared bytes", shared_->shared_buffers.shared_bytes(), 0);
  expect("bytes of device memory", shared_->shared_buffers.device_bytes(), device_bytes_);
  // As much as all copies may take has room only beside none.
  const auto copies = shared_->shared_buffers.ReserveCopies(shared_->shared_buffers.max_device_bytes());
  expect("refusals of copies", copies ? 0 : 1, 0);
  return leaks;
}

}  // namespace slotwise::sim
