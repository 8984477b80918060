// slotwise-bench rpc looks up rows, pooled or not, by the C++ client and pushes gradients, through one of the
// transports. It compares the transport with bare TCP with as many bytes and connections, two copies of the
// payload in memory, the shard without a transport, Redis, and PyTorch.
//
// The server is a rank in this process, unless the command line names a server. All contenders get the same
// processors for client and server together: two, unless --threads says otherwise.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/local_server.h"
#include "bench/peers/python.h"
#include "bench/peers/redis.h"
#include "bench/peers/tcp.h"
#include "bench/rpc_latency.h"
#include "bench/rpc_traffic.h"
#include "bench/sharded_table.h"
#include "bench/subcommand.h"
#include "bench/timing.h"
#include "bench/workload.h"
#include "slotwise/client.h"

namespace slotwise::bench {
namespace {

struct RpcBenchOptions : CommonOptions {
  std::string server;
  std::uint32_t rows = 100'000;
  std::uint32_t dim = 64;
  std::uint32_t hot = 1;
  std::uint32_t request = 8192;
  std::uint32_t in_flight = 4;
  std::uint32_t requests = 400;
  double duplicates = 0;
  int calls = 2000;
  std::vector<std::string> against{"tcp", "redis", "memcpy", "shard"};
  std::string torch_python = "/usr/bin/python3";
  ClientOptions client{.channels_per_rank = 2, .threads = 2};

  bool Against(const std::string& peer) const { return peers && std::ranges::count(against, peer) > 0; }
  std::uint32_t bags() const { return request / hot; }
  RpcTraffic::Options traffic() const {
    return {.rows = rows,
            .dim = dim,
            .hot = hot,
            .request = request,
            .in_flight = in_flight,
            .duplicates = duplicates,
            .seed = seed};
  }
};

const std::map<std::string, TransportKind> kTransportKinds{{"best", TransportKind::kBest},
                                                           {"shm", TransportKind::kShm},
                                                           {"tcp", TransportKind::kTcp},
                                                           {"grpc", TransportKind::kGrpc},
                                                           {"gpu", TransportKind::kGpu}};

std::string NameOf(TransportKind transport) {
  return std::ranges::find(kTransportKinds, transport, [](const auto& named) { return named.second; })->first;
}

constexpr const char* kTable = "slotwise-bench-rpc";

nlohmann::ordered_json OptionsToJson(const RpcBenchOptions& o) {
  auto json = ToJson(static_cast<const CommonOptions&>(o));
  json.update({{"server", o.server},
               {"rows", o.rows},
               {"dim", o.dim},
               {"request", o.request},
               {"in_flight", o.in_flight},
               {"requests", o.requests},
               {"hot", o.hot},
               {"duplicates", o.duplicates},
               {"against", o.against},
               {"channels", o.client.channels_per_rank},
               {"client_threads", o.client.threads},
               {"door", NameOf(o.client.transport)}});
  return json;
}

// Returns the processor time of this process.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// Times contenders, and measures their processor time, which is more reliable on a machine that other
// programs use.
class Times {
 public:
  void Add(std::string name, std::function<double()> run, std::function<double()> cpu) {
    const std::size_t index = cpu_.size();
    cpu_.emplace_back();
    contenders_.push_back({std::move(name),
                           [this, index, run = std::move(run), cpu = std::move(cpu)] {
                             const double before = cpu();
                             const double seconds = run();
                             cpu_[index].push_back(cpu() - before);
                             return seconds;
                           },
                           {}});
  }
  void Take(int repeats) { TakeTurns(repeats, contenders_); }

  const std::vector<double>& seconds(std::size_t index) const { return contenders_[index].seconds; }
  // Returns the median processor time of one run.
  double Cpu(std::size_t index) const { return Quantile(cpu_[index], 0.5); }

 private:
  std::vector<Contender> contenders_;
  std::vector<std::vector<double>> cpu_;
};

std::string Rounded(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

// CopyPeer makes the two copies that processes on one host need if neither works in the other's arrays: it
// copies each request's payload to shared memory, and from there.
class CopyPeer {
 public:
  CopyPeer(int threads, std::size_t bytes) : threads_(static_cast<std::size_t>(threads)), bytes_(bytes) {
    for (std::vector<std::byte>& buffer : buffers_) buffer.resize(bytes, std::byte{1});
    shared_.resize(threads_, std::vector<std::byte>(bytes));
  }

  void Run(std::uint32_t requests) {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < threads_; ++t) {
      threads.emplace_back([this, t, requests] {
        for (std::size_t i = t; i < requests; i += threads_) {
          const auto& from = buffers_[i % (buffers_.size() / 2)];
          auto& to = buffers_[buffers_.size() / 2 + i % (buffers_.size() / 2)];
          std::memcpy(shared_[t].data(), from.data(), bytes_);
          std::memcpy(to.data(), shared_[t].data(), bytes_);
        }
      });
    }
  }

 private:
  const std::size_t threads_;
  const std::size_t bytes_;
  std::array<std::vector<std::byte>, 16> buffers_;
  std::vector<std::vector<std::byte>> shared_;
};

// Looks up the same batches in a shard of this process with the same rows.
class ShardPeer {
 public:
  ShardPeer(const RpcBenchOptions& o, Collective& collective, const RpcTraffic& traffic)
      : o_(o),
        place_(MakePlace(o, collective)),
        exchange_(Must(MakeExchange(*place_.device, place_.device->WorkStream(), collective), "no exchange")),
        table_(*place_.device, collective, *exchange_, RpcTraffic::TableOf("alone", o.traffic()), {}),
        batches_(traffic.batches()) {
    std::vector<Key> keys(o.rows);
    for (std::uint32_t row = 0; row < o.rows; ++row) keys[row] = RpcTraffic::KeyOf(row);
    table_.Insert(keys);
  }

  // Times the lookups alone.
  double Run(std::uint32_t requests) {
    double seconds = 0;
    for (std::uint32_t i = 0; i < requests; ++i) {
      table_.SetBatch(*batches_[i % batches_.size()], o_.bags(), o_.hot, {});
      seconds += SecondsOf([&] {
        table_.Lookup();
        table_.Wait();
      });
    }
    return seconds;
  }

 private:
  const RpcBenchOptions& o_;
  const Place place_;
  const std::unique_ptr<Exchange> exchange_;
  ShardedTable table_;
  const std::vector<const std::vector<Key>*> batches_;
};

std::unique_ptr<PythonPeer> StartTorch(const RpcBenchOptions& o, int threads, const RpcTraffic& traffic,
                                       std::string& why_not) {
  std::vector<std::uint32_t> rows;
  for (const Key key : *traffic.batches().front()) {
    rows.push_back(static_cast<std::uint32_t>(Value(key) % o.rows));
  }
  return PythonPeer::Start(o.torch_python, "torch_embedding.py",
                           {{"rows", o.rows},
                            {"dim", o.dim},
                            {"bags", o.bags()},
                            {"hot", o.hot},
                            {"optimizer", "sgd"},
                            {"threads", threads},
                            {"device", o.backend},
                            {"calls", 1},
                            {"seed", o.seed}},
                           std::as_bytes(std::span(rows)), why_not);
}

// The contender that a time is compared with. `goal` is the least value of their time divided by ours; 0:
// there is no goal.
struct Comparison {
  std::string name;
  std::size_t theirs = 0;
  bool push = false;
  double goal = 0;
};

class RpcBench {
 public:
  RpcBench(const RpcBenchOptions& o, Collective& collective)
      : o_(o),
        processors_(KeepToProcessors(o.threads > 0 ? o.threads : 2)),
        place_(MakePlace(o, collective)) {
    if (o_.server.empty()) local_ = std::make_unique<LocalServer>(*place_.device);
    client_.emplace(Connect(o_.client.transport));
    if (o_.client.transport == TransportKind::kGpu) {
      client_device_ = o_.backend == "cuda" ? Must(MakeCudaDevice(0), "no GPU") : MakeCpuDevice(1);
    }
    traffic_.emplace(*client_, kTable, o_.traffic(), client_device_.get());
    traffic_->LookUp(4 * o_.in_flight);
    traffic_->Push(o_.in_flight);
    traffic_->Check();
    AddOurs("lookup", "push", *traffic_);
    AddPeers(collective);
  }

  Report Run() {
    times_.Take(o_.repeats);
    traffic_->Check();
    Report report;
    report.benchmark = "rpc";
    report.title = Title();
    report.options = OptionsToJson(o_);
    report.device = place_.device->Name();
    report.threads = processors_;
    report.copy_bytes_per_second = place_.memory->CopyBytesPerSecond();
    report.random_lines_per_second = place_.memory->LinesPerSecond();
    for (const bool push : {false, true}) AddLine(push, report);
    AddPooled(report);
    if (o_.calls > 0 && !client_device_) AddLatency(report);  // arrays lie on the host
    report.notes.push_back("the floor is one copy of the payload in memory; client and server share " +
                           std::to_string(processors_) + " processors");
    report.notes.push_back(ProcessorTimes());
    for (const std::string& why : missing_) report.notes.push_back(why);
    return report;
  }

 private:
  static constexpr std::size_t kLookup = 0;
  static constexpr std::size_t kPush = 1;

  Client Connect(TransportKind transport, bool send_each_key_once = true) const {
    ClientOptions options = o_.client;
    options.transport = transport;
    options.send_each_key_once = send_each_key_once;
    return Must(Client::Connect({local_ ? local_->address() : o_.server}, options), "cannot connect");
  }
  std::size_t Add(const std::string& name, std::function<double()> run,
                  std::function<double()> cpu = CpuSeconds) {
    names_.push_back(name);
    times_.Add(name, std::move(run), std::move(cpu));
    return names_.size() - 1;
  }
  void AddOurs(const std::string& lookup, const std::string& push, RpcTraffic& traffic) {
    Add(lookup, [this, &traffic] { return SecondsOf([&] { traffic.LookUp(o_.requests); }); });
    Add(push, [this, &traffic] { return SecondsOf([&] { traffic.Push(o_.requests); }); });
  }

  std::size_t key_bytes() const { return std::size_t{o_.request} * sizeof(Key); }
  std::size_t row_bytes() const { return std::size_t{o_.bags()} * o_.dim * sizeof(float); }

  void AddPeers(Collective& collective) {
    if (o_.Against("tcp")) {
      tcp_.emplace(static_cast<std::size_t>(o_.client.channels_per_rank));
      // The goal is for large batches of rows by sockets.
      const bool large = o_.hot == 1 && row_bytes() >= std::size_t{16} << 20;
      const double of_tcp = large && o_.client.transport == TransportKind::kTcp ? 0.5 : 0;
      const auto exchange = [this](std::size_t there, std::size_t back) {
        return [this, there, back] { return SecondsOf([&] { tcp_->Exchange(o_.requests, there, back); }); };
      };
      compared_.push_back({"bare TCP", Add("bare TCP", exchange(key_bytes(), row_bytes())), false, of_tcp});
      compared_.push_back(
          {"bare TCP", Add("bare TCP", exchange(key_bytes() + row_bytes(), 16)), true, of_tcp});
      if (IsShared()) {
        tcp_client_.emplace(Connect(TransportKind::kTcp));
        tcp_traffic_.emplace(*tcp_client_, std::string(kTable) + "-tcp", o_.traffic());
        tcp_traffic_->Check();
        AddOurs("ours over TCP", "ours over TCP", *tcp_traffic_);
        compared_.push_back({"ours over TCP", names_.size() - 2, false, o_.hot == 1 ? 2.0 : 0});
        compared_.push_back({"ours over TCP", names_.size() - 1, true, 0});
      }
    }
    if (o_.Against("repeated")) {
      repeating_client_.emplace(Connect(o_.client.transport, false));
      repeating_traffic_.emplace(*repeating_client_, std::string(kTable) + "-repeated", o_.traffic());
      repeating_traffic_->Check();
      const auto look_up = [this] { return SecondsOf([&] { repeating_traffic_->LookUp(o_.requests); }); };
      compared_.push_back({"repeated keys", Add("repeated keys", look_up), false, 0});
    }
    if (o_.Against("memcpy")) {
      copy_.emplace(processors_, row_bytes());
      const std::size_t copies =
          Add("memcpy in and out", [this] { return SecondsOf([&] { copy_->Run(o_.requests); }); });
      for (const bool push : {false, true}) compared_.push_back({"memcpy in and out", copies, push, 0});
    }
    if (o_.Against("shard")) {
      shard_.emplace(o_, collective, *traffic_);
      shard_index_ = Add("the shard alone", [this] { return shard_->Run(o_.requests); });
      compared_.push_back({"the shard alone", *shard_index_, false, IsShared() && o_.hot > 1 ? 0.6 : 0});
    }
    std::string why_not;
    if (o_.Against("redis") && o_.hot == 1) {
      redis_ =
          RedisPeer::Start({.rows = o_.rows, .row_bytes = o_.dim * std::uint32_t{sizeof(float)}}, why_not);
      if (!redis_) missing_.push_back("no Redis beside it: " + why_not);
    }
    for (const bool fixed : {false, true}) {
      if (!redis_) break;
      const std::string name = redis_->description() + (fixed ? ", keys that never change" : "");
      const double rows = static_cast<double>(o_.requests) * o_.request;
      const std::size_t index = Add(
          name, [this, rows, fixed] { return redis_->Fetch(rows, fixed); },
          [this] { return redis_->CpuSeconds(); });
      compared_.push_back({name, index, false, fixed ? 2.0 : 6.0});
    }
    if (o_.Against("torch")) {
      torch_ = StartTorch(o_, processors_, *traffic_, why_not);
      if (!torch_) {
        missing_.push_back("no PyTorch beside it: " + why_not);
        return;
      }
      const auto one = [this] { return torch_->Run("lookup") * o_.requests; };
      compared_.push_back({torch_->description(), Add("PyTorch", one), false, 0});
    }
  }

  bool IsShared() const {
    return o_.client.transport == TransportKind::kShm ||
           (o_.client.transport == TransportKind::kBest && local_ != nullptr);
  }

  std::string Title() const {
    return (o_.hot == 1 ? "rows" : "bags of " + std::to_string(o_.hot) + " rows") + " of dim " +
           std::to_string(o_.dim) + ", transport " + NameOf(o_.client.transport) + ", requests of " +
           std::to_string(o_.request) + " keys, " + std::to_string(o_.in_flight) + " in flight";
  }

  void AddLine(bool push, Report& report) const {
    const std::size_t ours = push ? kPush : kLookup;
    const double bytes = static_cast<double>(o_.requests) * static_cast<double>(row_bytes());
    Line line{.name = names_[ours],
              .keys = static_cast<double>(o_.requests) * o_.request,
              .seconds = times_.seconds(ours),
              .bytes = 2 * bytes,  // every byte is read and written once
              .floor_seconds = 2 * bytes / report.copy_bytes_per_second,
              .peers = {}};
    report.figures.push_back(
        {.name = line.name + ", payload, GB/s", .value = bytes / Quantile(line.seconds, 0.5) / 1e9});
    for (const Comparison& with : compared_) {
      if (with.push != push) continue;
      line.peers.push_back({with.name, processors_, times_.seconds(with.theirs)});
      report.figures.push_back({.name = line.name + ", of what " + with.name + " does",
                                .value = MedianRatio(times_.seconds(with.theirs), times_.seconds(ours)),
                                .at_least = with.goal});
    }
    report.lines.push_back(line);
  }

  // A pooled lookup by sockets takes the shard's time and the bytes' time, if the two do not overlap.
  void AddPooled(Report& report) const {
    const auto tcp = std::ranges::find_if(
        compared_, [](const Comparison& with) { return with.name == "bare TCP" && !with.push; });
    if (o_.hot == 1 || IsShared() || !shard_index_ || tcp == compared_.end()) return;
    std::vector<double> both = times_.seconds(*shard_index_);
    for (std::size_t i = 0; i < both.size(); ++i) both[i] += times_.seconds(tcp->theirs)[i];
    report.figures.push_back({.name = "lookup, of 1 / (1 / bare TCP + 1 / shard)",
                              .value = MedianRatio(both, times_.seconds(kLookup)),
                              .at_least = 0.7});
  }

  void AddLatency(Report& report) {
    const RpcLatency latency = MeasureLatency(*client_, o_.client.transport, kTable, o_.hot, o_.calls);
    for (const auto& [q, name, most] : {std::tuple(0.5, "p50", 1.5), std::tuple(0.99, "p99", 3.0)}) {
      const double empty = Quantile(latency.empty, q);
      const double lookup = Quantile(latency.lookup, q);
      report.figures.push_back(
          {.name = std::string("an empty call, ") + name + ", us", .value = empty * 1e6});
      report.figures.push_back(
          {.name = std::string("a lookup of one sample, ") + name + ", us", .value = lookup * 1e6});
      report.figures.push_back({.name = std::string("a lookup of one sample over an empty call, ") + name,
                                .value = lookup / empty,
                                .at_most = most});
    }
  }

  std::string ProcessorTimes() const {
    const double rows = static_cast<double>(o_.requests) * o_.request;
    std::string text = "processor time a key:";
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == "PyTorch") continue;  // has its own process
      text += (i > 0 ? ", " : " ") + names_[i] + " " + Rounded(times_.Cpu(i) / rows * 1e9) + " ns";
      if (i == 0 && !o_.server.empty()) text += " (the client's alone)";
    }
    return text;
  }

  const RpcBenchOptions& o_;
  const int processors_;
  const Place place_;
  std::unique_ptr<LocalServer> local_;
  std::unique_ptr<Device> client_device_;  // holds the arrays of the GPU transport
  std::optional<Client> client_;
  std::optional<RpcTraffic> traffic_;
  std::optional<Client> tcp_client_;
  std::optional<RpcTraffic> tcp_traffic_;
  std::optional<Client> repeating_client_;  // sends repeated keys of a batch repeatedly
  std::optional<RpcTraffic> repeating_traffic_;
  std::optional<TcpPeer> tcp_;
  std::optional<CopyPeer> copy_;
  std::optional<ShardPeer> shard_;
  std::optional<std::size_t> shard_index_;
  std::unique_ptr<RedisPeer> redis_;
  std::unique_ptr<PythonPeer> torch_;
  std::vector<std::string> missing_;
  std::vector<std::string> names_;
  std::vector<Comparison> compared_;
  Times times_;
};

Report RunRpc(const RpcBenchOptions& o, Collective& collective) {
  Must(collective.size() == 1,
       "rpc runs alone: for a server of several ranks start one, and name it with --server");
  Must(o.request % o.hot == 0, "--request must be a multiple of --hot");
  return RpcBench(o, collective).Run();
}

}  // namespace

Subcommand AddRpc(CLI::App& parent) {
  auto options = std::make_shared<RpcBenchOptions>();
  CLI::App* app = parent.add_subcommand(
      "rpc",
      "rows by the C++ client through a transport, beside bare TCP, copies in memory, the shard and Redis");
  AddCommonOptions(*app, *options);
  app->add_option("--server", options->server, "host:port of a rank; empty: one in this process");
  app->add_option("--rows", options->rows, "rows in the table")->check(CLI::Range(1, 1 << 28));
  app->add_option("--dim", options->dim, "elements a row")->check(CLI::Range(1, 4096));
  app->add_option("--hot", options->hot, "keys a bag; 1: rows that are not pooled")
      ->check(CLI::PositiveNumber);
  app->add_option("--request", options->request, "keys a call")->check(CLI::PositiveNumber);
  app->add_option("--in-flight", options->in_flight, "calls at any time")->check(CLI::PositiveNumber);
  app->add_option("--requests", options->requests, "calls a timed run")->check(CLI::PositiveNumber);
  app->add_option("--calls", options->calls, "of one sample, whose latency is measured; 0: none")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--channels", options->client.channels_per_rank, "connections")->check(CLI::PositiveNumber);
  app->add_option("--client-threads", options->client.threads, "of the client")->check(CLI::PositiveNumber);
  app->add_option("--transport,--door", options->client.transport, "best, shm, tcp or grpc")
      ->transform(CLI::CheckedTransformer(kTransportKinds));
  app->add_option("--against", options->against,
                  "what it is compared with: tcp, redis, memcpy, shard, torch; repeated: a client that sends "
                  "each key as often as it comes")
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "redis", "memcpy", "shard", "torch", "repeated"}));
  app->add_option("--duplicates", options->duplicates,
                  "the share of a call's keys that repeat another of them; 0: keys are drawn alike")
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--torch-python", options->torch_python, "the Python that has PyTorch");
  return {app, options, [options](Collective& collective) { return RunRpc(*options, collective); }};
}

}  // namespace slotwise::bench
