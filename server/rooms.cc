#include "server/rooms.h"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "server/configured.h"
#include "server/draw_hash_secret.h"
#include "server/engine/output_distributor.h"
#include "server/ops/fit_limits.h"
#include "server/ops/health_port.h"
#include "server/ops/host_port.h"
#include "server/ops/logging.h"
#include "server/ops/metrics_port.h"
#include "server/start_up.h"
#include "wire/spare_processors.h"

namespace slotwise {
namespace {

// The default deadline of a call is a step's timeout and this.
constexpr std::chrono::seconds kDefaultDeadlineMargin{30};

// Returns this process's share of the processors that it may run on.
int ThreadsPerRank(int ranks_here) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int processors = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(1, processors / ranks_here);
}

Result<std::unique_ptr<Device>> MakeDevice(const v1::ServerConfig& config, const Collective& collective) {
  if (UsesGpu(config.backend())) {
    return MakeCudaDevice(collective.local_rank() % std::max(1, CudaDeviceCount()));
  }
  const int threads = static_cast<int>(config.threads());
  const int ranks_here = collective.local_size();
  return MakeCpuDevice(threads > 0 ? threads : ThreadsPerRank(ranks_here), ranks_here);
}

// Returns the smallest share of all ranks. Ranks of a host share its memory, and its devices if fewer.
MemoryShare LeastMemoryShare(const Device& device, Collective& collective) {
  const auto ranks_here = static_cast<std::uint64_t>(collective.local_size());
  const auto devices =
      device.SharesHostMemory() ? 1 : static_cast<std::uint64_t>(std::max(1, CudaDeviceCount()));
  MemoryShare least{.device = device.MemoryBytes() / ((ranks_here + devices - 1) / devices),
                    .host = HostMemoryBytesInAll() / ranks_here,
                    .gpu = !device.SharesHostMemory(),
                    .several_ranks = collective.size() > 1};
  for (const auto& [of_device, of_host] : AllGatherValues(collective, std::array{least.device, least.host})) {
    least.device = std::min(least.device, of_device);
    least.host = std::min(least.host, of_host);
  }
  return least;
}

// Sets the limits that depend on the memory, and sets memory aside for what the server keeps besides tables.
// Collective: all ranks have an error, or none has. REQUIRES: all ranks have GPUs, or none has.
Result<sizing::SetAside> DivideMemory(Collective& collective, Rooms& rooms) {
  const MemoryShare memory = LeastMemoryShare(*rooms.device, collective);
  const auto plan = FitLimits(memory, rooms.config);
  if (!plan.ok()) return plan.status();
  if (Value(collective.rank()) != 0) return plan->aside;
  spdlog::info("a round gathers {} MiB at most (limits.max_round_mib), and {} MiB of requests wait",
               plan->limits.round, plan->limits.queue);
  spdlog::info("of the host's memory a rank has {} MiB, of which {} are set aside ({}){}", memory.host >> 20,
               plan->aside.all(), TextOf(plan->aside),
               memory.gpu ? "" : fmt::format(", and {} are for tables", plan->tables_mib));
  return plan->aside;
}

// Keeps this much memory from tables. On a host with a GPU, tables take none of it.
void KeepFromTables(std::uint64_t mib, const Rooms& rooms) {
  const bool keeps = !rooms.config.durability().folder().empty();
  KeepHostMemoryFromTables(mib << 20, keeps ? sizing::kListedBytesKeeping : sizing::kListedBytes);
}

DataType TypeOf(v1::DataType type) {
  if (type == v1::DATA_TYPE_FLOAT16) return DataType::kFloat16;
  if (type == v1::DATA_TYPE_BFLOAT16) return DataType::kBFloat16;
  return DataType::kFloat32;
}

EngineOptions EngineOptionsOf(const v1::ServerConfig& config) {
  const v1::Limits& limits = config.limits();
  EngineOptions options;
  options.distribution.partials = TypeOf(config.partial_sums());
  options.stays_awake = HasSpareProcessors();
  options.max_round_bytes = std::uint64_t{limits.max_round_mib()} << 20;
  options.max_queue_bytes = std::uint64_t{limits.max_queue_mib()} << 20;
  options.max_tables = limits.max_tables();
  options.step_timeout = std::chrono::milliseconds(limits.step_timeout_ms());
  options.ledger.max_bytes = std::uint64_t{limits.max_ledger_mib()} << 20;
  options.rank_limit.percent = limits.max_rank_percent();
  options.max_evicted_bytes = std::uint64_t{limits.max_evicted_mib()} << 20;
  return options;
}

// Ranks of a machine take consecutive ports from the configured one on; with port 0 each rank takes any
// free port.
Result<HostPort> PlaceOf(const std::string& text, const char* field, int local_rank) {
  auto place = ParseHostPort(text);
  if (!place.ok()) return place.status();
  const int port = place->port == 0 ? 0 : place->port + local_rank;
  if (port > 65535) {
    return InvalidArgument(std::string(field) + " is " + text + ": process " + std::to_string(local_rank) +
                           " of this machine would need port " + std::to_string(port));
  }
  place->port = static_cast<std::uint16_t>(port);
  return place;
}

Result<RpcOptions> RpcOptionsOf(const v1::ServerConfig& config, int local_rank) {
  const auto listen = PlaceOf(config.listen(), "listen", local_rank);
  if (!listen.ok()) return listen.status();
  RpcOptions options;
  options.host = listen->host;
  options.port = listen->port;
  options.max_message_bytes = std::uint64_t{config.limits().max_message_mib()} << 20;
  options.max_round_bytes = std::uint64_t{config.limits().max_round_mib()} << 20;
  options.max_shared_bytes = std::uint64_t{config.limits().max_shared_mib()} << 20;
  options.max_device_shared_bytes = std::uint64_t{config.limits().max_gpu_shared_mib()} << 20;
  options.max_connections = config.limits().max_connections();
  options.max_calls_per_connection = config.limits().max_calls_per_connection();
  options.max_calls = config.limits().max_calls();
  options.max_queue_bytes = std::uint64_t{config.limits().max_queue_mib()} << 20;
  options.engine_timeout = std::chrono::milliseconds(config.limits().rank_timeout_ms());
  options.reply_timeout = std::chrono::milliseconds(config.limits().reply_timeout_ms());
  options.default_deadline =
      std::chrono::milliseconds(config.limits().step_timeout_ms()) + kDefaultDeadlineMargin;
  options.tls = TlsFilesOf(config.security().tls());
  return options;
}

// No other server draws this name, so a client that finds a server there is on the rank's host.
std::string LocalName(std::uint64_t instance, Rank rank) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "slotwise-%016llx-%d", static_cast<unsigned long long>(instance),
                Value(rank));
  return name.data();
}

// Returns the host by which others reach a listener at `host`.
std::string DialledHost(const std::string& host) {
  std::array<char, 256> name{};
  return IsWildcard(host) && gethostname(name.data(), name.size() - 1) == 0 ? name.data() : host;
}

// Returns the address that clients connect to.
std::string AdvertisedAddress(const v1::ServerConfig& config, const RpcOptions& rpc, std::uint16_t port) {
  const std::string& host = config.advertise_host();
  return (host.empty() ? DialledHost(rpc.host) : host) + ":" + std::to_string(port);
}

// Returns the address of this rank's metrics for other ranks; empty: there is none.
std::string MetricsAddress(const v1::ServerConfig& config, const HttpPort* metrics) {
  if (metrics == nullptr) return {};
  const auto listen = ParseHostPort(config.metrics_listen());
  return listen.ok() ? DialledHost(listen->host) + ":" + std::to_string(metrics->port()) : std::string();
}

void LogDistribution(const std::string& exchange, const DistributionOptions& distribution) {
  const auto rate = [](double seconds_a_byte) { return 1e-9 / seconds_a_byte; };
  const DistributionCosts& costs = distribution.costs;
  spdlog::info("ranks exchange batches by {}", exchange);
  spdlog::info(
      "measured, in GB/s of all ranks' bags: reduce-scatter {:.3g}, all-gather {:.3g}, all-to-all {:.3g}, "
      "a copy {:.3g}",
      rate(costs.reduce_scatter), rate(costs.all_gather), rate(costs.all_to_all), rate(costs.copy));
  spdlog::info("partial sums of bags travel as {}", ToString(distribution.partials));
}

// `lock` is null on ranks that do not hold the folder's lock; else it outlives the options.
DurabilityOptions DurabilityOptionsOf(const v1::ServerConfig& server, const FolderLock* lock,
                                      const LostRank& lost) {
  const v1::Durability& config = server.durability();
  DurabilityOptions options;
  options.journal_queued_bytes = sizing::JournalMib(server.limits().max_queue_mib()) << 20;
  if (config.mode() == v1::DURABILITY_MODE_SYNC) options.mode = DurabilityMode::kSync;
  if (config.mode() == v1::DURABILITY_MODE_INTERVAL) options.mode = DurabilityMode::kInterval;
  options.folder = config.folder();
  options.interval = std::chrono::seconds(config.interval_s());
  options.checkpoint_every = std::chrono::seconds(config.checkpoint_every_s());
  options.keep = config.keep();
  options.max_deltas = config.max_deltas();
  options.rounded_checkpoints = config.rounded_checkpoints();
  options.max_copy_on_write_bytes = std::uint64_t{config.max_copy_on_write_mib()} << 20;
  options.server_version = SLOTWISE_VERSION;
  if (lock != nullptr) options.still_ours = [lock] { return lock->StillHeld(); };
  options.on_failure = lost;
  return options;
}

// A server that was killed may hold its folder for a while.
constexpr std::chrono::seconds kPatience{10};

// Two servers on one folder would each acknowledge steps that the other's state lacks.
Status HoldData(const Collective& collective, Rooms& rooms) {
  const std::string& folder = rooms.config.durability().folder();
  if (folder.empty() || Value(collective.rank()) != 0) return {};
  if (Status made = SystemFiles().MakeFolder(folder); !made.ok()) return made;
  auto lock = FolderLock::Take(folder, "server.lock", "slotwise-server", kPatience);
  if (!lock.ok()) return lock.status();
  rooms.data.emplace(std::move(*lock));
  return {};
}

// Restores the state in the data folder, if there is one.
Status Recover(const v1::ServerConfig& config, const Collective& collective, const FolderLock* lock,
               const LostRank& lost, Engine& engine) {
  const std::string& folder = config.durability().folder();
  if (folder.empty()) return {};
  const auto begin = std::chrono::steady_clock::now();
  const auto recovered = engine.Recover(DurabilityOptionsOf(config, lock, lost));
  if (recovered.status().code() == StatusCode::kResourceExhausted) {
    return ResourceExhausted(recovered.status().message() + ": what " + folder +
                             " holds needs more memory, or higher limits, than this start has for it, and "
                             "more ranks on a host leave their tables less");
  }
  if (!recovered.ok()) return recovered.status();
  if (Value(collective.rank()) == 0) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    spdlog::info(
        "{} holds lineage {:016x}: {} table(s), up to round {}, {} of them from the journal, in {:.2f} s",
        folder, recovered->base.lineage, recovered->tables, recovered->round, recovered->rounds,
        seconds.count());
  }
  return {};
}

// Opens the health port, if one is configured; at the start, because a recovery may take long.
Status OpenHealth(const Collective& collective, Rooms& rooms) {
  if (rooms.config.health_listen().empty()) return {};
  const auto address = PlaceOf(rooms.config.health_listen(), "health_listen", collective.local_rank());
  if (!address.ok()) return address.status();
  auto health = OpenHealthPort(*address, [&rooms] { return rooms.serves.load(); });
  if (!health.ok()) return health.status();
  rooms.health = std::move(*health);
  spdlog::info("health at http://{}:{}/readyz", address->host, rooms.health->port());
  return {};
}

// Opens the metrics port, if one is configured.
Status OpenMetrics(const Collective& collective, Rooms& rooms) {
  if (rooms.config.metrics_listen().empty()) return {};
  const auto address = PlaceOf(rooms.config.metrics_listen(), "metrics_listen", collective.local_rank());
  if (!address.ok()) return address.status();
  const auto rank = static_cast<std::uint32_t>(Value(collective.rank()));
  const auto local_rank = static_cast<std::uint32_t>(collective.local_rank());
  RankFacts facts{.version = SLOTWISE_VERSION,
                  .device = rooms.device->Name(),
                  .rank = rank,
                  .ranks = static_cast<std::uint32_t>(collective.size()),
                  .local_rank = local_rank,
                  .local_size = static_cast<std::uint32_t>(collective.local_size())};
  if (address->port != 0) facts.first_port = static_cast<std::uint16_t>(address->port - local_rank);
  if (!rooms.config.durability().folder().empty()) rooms.disk.emplace(rooms.config.durability().folder());
  const auto read = [&rooms, rank] {
    RankReading reading{.calls = rooms.rpc->Stats(),
                        .engine = rooms.engine->Stats(),
                        .device_bytes = rooms.device->MemoryBytes(),
                        .device_free_bytes = rooms.device->FreeMemoryBytes(),
                        .for_tables_bytes = rooms.device->MemoryForTables(),
                        .refused = rooms.access->Refused(),
                        .process = ReadProcessUsage(),
                        .disk = rooms.disk ? rooms.disk->Read() : std::nullopt};
    reading.calls.rank = rank;
    return reading;
  };
  auto metrics = OpenMetricsPort(*address, facts, read, *rooms.access, rooms.peers);
  if (!metrics.ok()) return metrics.status();
  rooms.metrics = std::move(*metrics);
  spdlog::info("metrics at http://{}:{}/metrics", address->host, rooms.metrics->port());
  return {};
}

}  // namespace

bool UsesGpu(v1::Backend backend) {
  return backend == v1::BACKEND_CUDA || (backend != v1::BACKEND_CPU && CudaDeviceCount() > 0);
}

Result<std::uint64_t> GetReady(const Flags& flags, const Collective& collective, Rooms& rooms) {
  ConfigErrors errors;
  Configured configured = Configure(flags, errors);
  rooms.config = configured.config.values;
  SetUpLogging(
      {.level = rooms.config.log_level(), .format = rooms.config.log_format(), .rank = collective.rank()});
  if (!errors.empty()) return errors.status();
  if (collective.local_rank() == 0) {
    for (const std::string& warning : errors.Warnings()) spdlog::warn("{}", warning);
  }
  rooms.tables = std::move(configured.tables);
  rooms.access = std::move(configured.access);
  if (Status open = OpenHealth(collective, rooms); !open.ok()) return open;
  if (Status held = HoldData(collective, rooms); !held.ok()) return held;
  auto device = MakeDevice(rooms.config, collective);
  if (!device.ok()) return device.status();
  rooms.device = std::move(*device);
  const Result<HashSecret> secret = DrawHashSecret();
  if (!secret.ok()) return secret.status();
  rooms.secret.emplace(*secret);
  return Fingerprint(configured.config) ^ std::hash<std::string>{}(SLOTWISE_VERSION);
}

Result<RankPlace> Connect(Collective& collective, const LostRank& lost, Rooms& rooms) {
  auto exchanges =
      Exchanges::Make(*rooms.device, collective, {.deterministic = rooms.config.deterministic()});
  if (!exchanges.ok()) return exchanges.status();
  rooms.exchanges = std::move(*exchanges);
  const auto aside = DivideMemory(collective, rooms);
  if (!aside.ok()) return aside.status();
  const bool on_host = rooms.device->SharesHostMemory();
  // The restored state was in memory before, so it may take the spare memory: no client calls meanwhile.
  if (on_host) KeepFromTables(aside->all() - aside->spare, rooms);
  EngineOptions engine = EngineOptionsOf(rooms.config);
  engine.distribution.costs =
      MeasureDistribution(*rooms.device, collective, rooms.exchanges->bags(), engine.distribution.partials);
  if (collective.size() > 1 && Value(collective.rank()) == 0) {
    LogDistribution(rooms.exchanges->bags().Name(), engine.distribution);
  }
  const Instance instance = DrawInstance(collective);
  rooms.peers = std::make_shared<MetricsPeers>(DrawPeersToken(collective));
  engine.instance = instance.id;
  engine.ledger.first_epoch = instance.first_epoch;
  // From here on no rank waits for another, so a rank that has found its neighbours may go on.
  auto heartbeat =
      StartHeartbeat(collective, std::chrono::milliseconds(rooms.config.limits().rank_timeout_ms()), lost);
  if (!heartbeat.ok()) return heartbeat.status();
  rooms.heartbeat = std::move(*heartbeat);
  rooms.engine =
      std::make_unique<Engine>(*rooms.device, collective, *rooms.exchanges, rooms.secret.value(), engine);
  const FolderLock* const lock = rooms.data ? &*rooms.data : nullptr;
  if (const Status recovered = Recover(rooms.config, collective, lock, lost, *rooms.engine); !recovered.ok())
    return recovered;
  if (on_host) KeepFromTables(aside->all(), rooms);

  auto options = RpcOptionsOf(rooms.config, collective.local_rank());
  if (!options.ok()) return options.status();
  options->local = LocalName(instance.id, collective.rank());
  options->access = rooms.access.get();
  options->on_serving = [&rooms](bool serves) { rooms.serves = serves; };
  if (!options->speaks_data_locally()) options->local.clear();
  auto rpc = RpcServer::Start(*options, *rooms.engine);
  if (!rpc.ok()) return rpc.status();
  rooms.rpc = std::move(*rpc);
  if (Status open = OpenMetrics(collective, rooms); !open.ok()) return open;
  return RankPlace{.address = AdvertisedAddress(rooms.config, *options, rooms.rpc->port()),
                   .device = rooms.device->Name(),
                   .local = options->local,
                   .gpu = rooms.device->Uuid(),
                   .local_user = geteuid(),
                   .metrics = MetricsAddress(rooms.config, rooms.metrics.get())};
}

}  // namespace slotwise
