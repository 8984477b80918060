// slotwise-server: picks the transport and the device, wires the rooms, runs the engine until told to stop.
//
// A start has three parts: each rank gets ready by itself (configuration, device, port); all agree that all are, or
// all exit 1; the engine runs, makes the configuration's tables, and opens the doors.
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/engine/engine.h"
#include "server/flags.h"
#include "server/ops/config.h"
#include "server/ops/host_port.h"
#include "server/ops/logging.h"
#include "server/ops/stop_signals.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/table_options_proto.h"
#include "server/start_up.h"

namespace slotwise {
namespace {

// How long replies may take to reach their callers once the engine has stopped.
constexpr std::chrono::seconds kShutdownGrace{5};
// A call without a deadline is given up this long after a step would have been.
constexpr std::chrono::seconds kDefaultDeadlineMargin{30};

// INVALID_ARGUMENT, with the table's place in the file.
Result<std::vector<TableOptions>> TablesOf(const Config& config) {
  std::vector<TableOptions> tables;
  for (int i = 0; i < config.values.tables_size(); ++i) {
    auto table = FromProto(config.values.tables(i));
    if (!table.ok()) {
      return InvalidArgument(config.table_places[static_cast<std::size_t>(i)] + "." +
                             table.status().message());
    }
    tables.push_back(*table);
  }
  return tables;
}

// This process's share of the processors it may run on.
int ThreadsPerRank(int ranks_here) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int processors = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(1, processors / ranks_here);
}

Result<std::unique_ptr<Device>> MakeDevice(const v1::ServerConfig& config, const Collective& collective) {
  const int devices = config.backend() == v1::BACKEND_CPU ? 0 : CudaDeviceCount();
  if (config.backend() == v1::BACKEND_CUDA || devices > 0) {
    return MakeCudaDevice(devices > 0 ? collective.local_rank() % devices : 0);
  }
  const int threads = static_cast<int>(config.threads());
  return MakeCpuDevice(threads > 0 ? threads : ThreadsPerRank(collective.local_size()));
}

EngineOptions EngineOptionsOf(const v1::Limits& limits) {
  EngineOptions options;
  options.max_round_bytes = std::uint64_t{limits.max_round_mib()} << 20;
  options.max_inbox_bytes = std::uint64_t{limits.max_inbox_mib()} << 20;
  options.step_timeout = std::chrono::milliseconds(limits.step_timeout_ms());
  return options;
}

// A machine's ranks take the ports from the configured one on; port 0 lets each have any.
Result<RpcOptions> RpcOptionsOf(const v1::ServerConfig& config, int local_rank) {
  const auto listen = ParseHostPort(config.listen());
  if (!listen.ok()) return listen.status();
  const int port = listen->port == 0 ? 0 : listen->port + local_rank;
  if (port > 65535) {
    return InvalidArgument("listen is " + config.listen() + ": process " + std::to_string(local_rank) +
                           " of this machine would need port " + std::to_string(port));
  }
  RpcOptions options;
  options.host = listen->host;
  options.port = static_cast<std::uint16_t>(port);
  options.max_message_bytes = std::uint64_t{config.limits().max_message_mib()} << 20;
  options.default_deadline =
      std::chrono::milliseconds(config.limits().step_timeout_ms()) + kDefaultDeadlineMargin;
  return options;
}

// As a client can dial it.
std::string AdvertisedAddress(const v1::ServerConfig& config, const RpcOptions& rpc, std::uint16_t port) {
  std::string host = config.advertise_host();
  if (host.empty()) {
    host = rpc.host;
    std::array<char, 256> name{};
    if (IsWildcard(host) && gethostname(name.data(), name.size() - 1) == 0) host = name.data();
  }
  return host + ":" + std::to_string(port);
}

// What one rank has before it knows of the others. Destroyed from the last member to the first.
struct Rooms {
  Config config;
  std::vector<TableOptions> tables;
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RpcServer> rpc;
};

Result<ReadyRank> GetReady(const Flags& flags, Collective& collective, Rooms& rooms) {
  auto config = ReadConfig(flags);
  if (!config.ok()) return config.status();
  const v1::ServerConfig& values = config->values;
  SetUpLogging({.level = values.log_level(), .format = values.log_format(), .rank = collective.rank()});

  auto tables = TablesOf(*config);
  if (!tables.ok()) return tables.status();
  auto device = MakeDevice(values, collective);
  if (!device.ok()) return device.status();
  const auto rpc_options = RpcOptionsOf(values, collective.local_rank());
  if (!rpc_options.ok()) return rpc_options.status();

  auto engine = std::make_unique<Engine>(**device, collective, EngineOptionsOf(values.limits()));
  auto rpc = RpcServer::Start(*rpc_options, *engine);
  if (!rpc.ok()) return rpc.status();

  ReadyRank ready{.place = {.address = AdvertisedAddress(values, *rpc_options, (*rpc)->port()),
                            .device = (*device)->Name()},
                  .fingerprint = Fingerprint(*config) ^ std::hash<std::string>{}(SLOTWISE_VERSION)};
  rooms.device = std::move(*device);
  rooms.engine = std::move(engine);
  rooms.rpc = std::move(*rpc);
  rooms.tables = std::move(*tables);
  rooms.config = std::move(*config);
  return ready;
}

// Queues the making of the configuration's tables. Every rank asks for every table: whoever comes first makes it, and
// each rank hears for itself that it is there. `ready` is called once, from the engine's thread, with the first error.
void MakeTables(Engine& engine, const std::vector<TableOptions>& tables,
                std::function<void(const Status&)> ready) {
  struct Progress {
    std::size_t missing;
    Status first_error;
    std::function<void(const Status&)> ready;
  };
  if (tables.empty()) return ready({});
  const auto progress = std::make_shared<Progress>(Progress{tables.size(), {}, std::move(ready)});
  for (const TableOptions& options : tables) {
    engine.Submit(CreateTableRequest{
        .options = options, .done = [progress, name = options.name](const Result<CreatedTable>& table) {
          if (!table.ok() && progress->first_error.ok()) {
            progress->first_error = {table.status().code(),
                                     "table \"" + name.str() + "\": " + table.status().message()};
          }
          if (--progress->missing == 0) progress->ready(progress->first_error);
        }});
  }
}

// An error that only this rank has seen, while others wait for it: ends the process, and the others with it.
[[noreturn]] void EndAllRanks(const std::exception& error) {
  spdlog::critical("{}", error.what());
  if (LaunchedByMpi()) MpiSession::AbortAllRanks(1);
  std::_Exit(1);  // without destructors: they would wait for requests that nobody answers any more
}

int Serve(const Flags& flags, Collective& collective) {
  SetUpLogging({.rank = collective.rank()});  // until the configuration says how
  Rooms rooms;
  const auto places = AgreeToStart(collective, GetReady(flags, collective, rooms));
  if (!places) return 1;

  std::atomic<bool> failed = false;
  const Topology topology{.version = SLOTWISE_VERSION, .ranks = *places, .rank = collective.rank()};
  const StopSignals signals([&rooms](std::string_view signal) {
    spdlog::info("{}: finishing what runs", signal);
    rooms.engine->RequestStop();
  });
  MakeTables(*rooms.engine, rooms.tables, [&](const Status& status) {
    if (!status.ok()) {
      failed = true;
      if (Value(collective.rank()) == 0)
        spdlog::error("cannot make a table of the configuration: {}", status.message());
      return rooms.engine->RequestStop();
    }
    rooms.rpc->Open(topology);
    const RankPlace& place = topology.ranks[static_cast<std::size_t>(Value(topology.rank))];
    spdlog::info("ready at {}: rank {} of {} on {}, {} table(s) from the configuration", place.address,
                 Value(topology.rank), topology.ranks.size(), place.device, rooms.tables.size());
  });

  try {
    rooms.engine->Run();
  } catch (const std::exception& error) {
    EndAllRanks(error);
  }
  rooms.rpc->Shutdown(kShutdownGrace);
  spdlog::info("stopped");
  return failed ? 1 : 0;
}

int CheckConfig(const Flags& flags) {
  const auto config = ReadConfig(flags);
  const auto tables = config.ok() ? TablesOf(*config) : config.status();
  if (!tables.ok()) {
    std::fprintf(stderr, "%s\n", tables.status().message().c_str());
    return 1;
  }
  std::printf("%s is right: %zu table(s)\n", flags.config_path.c_str(), tables->size());
  return 0;
}

int Main(int argc, char** argv) {
  const auto parsed = ParseFlags(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  const Flags& flags = std::get<Flags>(parsed);
  if (flags.check_config) return CheckConfig(flags);

  HoldStopSignals();  // before MPI and gRPC start threads
  if (!LaunchedByMpi()) return Serve(flags, *MakeSoloCollective());
  const MpiSession mpi;
  try {
    return Serve(flags, *MakeMpiCollective());
  } catch (const std::exception& error) {
    EndAllRanks(error);
  }
}

}  // namespace
}  // namespace slotwise

int main(int argc, char** argv) {
  try {
    return slotwise::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "slotwise-server: %s\n", error.what());
    return 1;
  }
}
