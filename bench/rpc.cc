// slotwise-bench rpc fetches rows over loopback sockets by the C++ client from a server, and pushes
// gradients, beside bare TCP with as many bytes and connections, and beside Redis fetching the like.
//
// The server is a rank in this process, unless the command line names a server. All contenders get the same
// processors for client and server together: two, unless --threads says otherwise. A fetch is one row a key
// (256 B at dim 64), unpooled, and a push one gradient a key.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/local_server.h"
#include "bench/peers/redis.h"
#include "bench/peers/tcp.h"
#include "bench/subcommand.h"
#include "bench/timing.h"
#include "slotwise/client.h"

namespace slotwise::bench {
namespace {

struct RpcBenchOptions : CommonOptions {
  std::string server;
  std::uint32_t rows = 100'000;
  std::uint32_t dim = 64;
  std::uint32_t request = 8192;
  std::uint32_t in_flight = 4;
  std::uint32_t requests = 400;
  ClientOptions client{.channels_per_rank = 2, .threads = 2};
};

Key KeyOf(std::uint32_t row) { return Key{(row + 1) * 0x9E3779B97F4A7C15ULL}; }
float ValueOf(std::uint32_t row, std::uint32_t element) {
  return static_cast<float>(row % 4096 * 64 + element % 64);
}

TableOptions Table(const RpcBenchOptions& o) {
  TableOptions table;
  table.name = TableName("slotwise-bench-rpc");
  table.dim = o.dim;
  table.combiner = Combiner::kNone;
  table.optimizer.learning_rate = 1;
  table.initializer.low = table.initializer.high = 0;
  table.initial_rows = o.rows;
  return table;
}

// Fills the table with ValueOf's values: rows begin as zeros and learn at rate 1, so each becomes the
// negative of its gradient.
void Fill(Client& client, const RpcBenchOptions& o, const TableOptions& table) {
  static_cast<void>(client.DropTable(table.name.view()));  // left by a run that was broken off
  Must(client.CreateTable(table), "cannot make the table");
  std::vector<Key> keys(o.rows);
  std::vector<float> gradients(std::size_t{o.rows} * o.dim);
  for (std::uint32_t row = 0; row < o.rows; ++row) {
    keys[row] = KeyOf(row);
    for (std::uint32_t e = 0; e < o.dim; ++e) gradients[std::size_t{row} * o.dim + e] = -ValueOf(row, e);
  }
  Must(client.Push(table.name.view(), {keys, {}}, gradients), "cannot fill the table");
}

// Keeps `in_flight` lookups of `request` keys each in flight.
class Traffic {
 public:
  Traffic(Client& client, const RpcBenchOptions& o, std::string table)
      : client_(client),
        o_(o),
        table_(std::move(table)),
        no_gradients_(std::size_t{o.request} * o.dim),
        streams_(o.in_flight) {
    std::mt19937_64 random(o.seed);
    for (Stream& stream : streams_) {
      stream.out.resize(std::size_t{o.request} * o.dim);
      for (Batch& batch : stream.batches) {
        batch.rows.resize(o.request);
        for (std::uint32_t& row : batch.rows) row = static_cast<std::uint32_t>(random() % o.rows);
        for (const std::uint32_t row : batch.rows) batch.keys.push_back(KeyOf(row));
      }
    }
  }

  // Sends `requests` lookups, or pushes, and returns once all are answered. Throws if one was refused.
  void Run(std::uint32_t requests, bool pushes = false) {
    {
      const std::lock_guard lock(mutex_);
      to_send_ = requests;
      to_answer_ = requests;
      pushes_ = pushes;
    }
    for (Stream& stream : streams_) Send(stream);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return to_answer_ == 0; });
    Must(failure_.ok(), "a call: " + failure_.message());
  }

  // Returns whether all streams hold the values of the rows that they asked for last.
  bool ValuesAreRight() const {
    return std::ranges::all_of(streams_, [this](const Stream& stream) { return ValuesAreRight(stream); });
  }

 private:
  struct Batch {
    std::vector<std::uint32_t> rows;
    std::vector<Key> keys;
  };
  // A stream asks for its batches in turn, so that not all rows are in the cache.
  struct Stream {
    std::array<Batch, 8> batches;
    std::size_t turns = 0;
    const Batch* looked_up = nullptr;  // whose rows `out` has; null: others left this stream no turn
    std::vector<float> out;
  };

  bool ValuesAreRight(const Stream& stream) const {
    if (stream.looked_up == nullptr) return true;
    const std::vector<std::uint32_t>& rows = stream.looked_up->rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::uint32_t e = 0; e < o_.dim; ++e) {
        if (stream.out[i * o_.dim + e] != ValueOf(rows[i], e)) return false;
      }
    }
    return true;
  }

  void Send(Stream& stream) {
    {
      const std::lock_guard lock(mutex_);
      if (to_send_ == 0) return;
      --to_send_;
    }
    const Batch& batch = stream.batches[stream.turns++ % stream.batches.size()];
    if (pushes_) {
      client_.PushAsync(
          table_, {batch.keys, {}}, no_gradients_, std::nullopt,
          [this, &stream](const Result<std::uint64_t>& step) { Answered(stream, step.status()); });
    } else {
      stream.looked_up = &batch;
      client_.LookupAsync(table_, {batch.keys, {}}, LookupMode::kEval, stream.out,
                          [this, &stream](const Status& status) { Answered(stream, status); });
    }
  }

  void Answered(Stream& stream, const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (!status.ok()) failure_ = status;
    }
    Send(stream);
    // This must come last, because Run may return after it.
    const std::lock_guard lock(mutex_);
    if (--to_answer_ == 0) changed_.notify_all();
  }

  Client& client_;
  const RpcBenchOptions& o_;
  const std::string table_;
  const std::vector<float> no_gradients_;  // zeros, so that rows stay what they are
  std::vector<Stream> streams_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t to_send_ = 0;
  std::uint32_t to_answer_ = 0;
  bool pushes_ = false;
  Status failure_;
};

nlohmann::ordered_json OptionsToJson(const RpcBenchOptions& o) {
  auto json = ToJson(static_cast<const CommonOptions&>(o));
  json.update({{"server", o.server},
               {"rows", o.rows},
               {"dim", o.dim},
               {"request", o.request},
               {"in_flight", o.in_flight},
               {"requests", o.requests},
               {"channels", o.client.channels_per_rank},
               {"client_threads", o.client.threads},
               {"door", o.client.door == Door::kGrpc ? "grpc" : "best"}});
  return json;
}

// Returns this process's processor time.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// Contenders that are timed, and the processor time that they took, which says more on a machine that other
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

Report RunRpc(const RpcBenchOptions& o, Collective& collective) {
  Must(collective.size() == 1,
       "rpc runs alone: for a server of several ranks start one, and name it with --server");
  const int processors = KeepToProcessors(o.threads > 0 ? o.threads : 2);
  const Place place = MakePlace(o, collective);
  std::unique_ptr<LocalServer> local;
  if (o.server.empty()) local = std::make_unique<LocalServer>(*place.device);
  Client client = Must(Client::Connect({local ? local->address() : o.server}, o.client), "cannot connect");
  const TableOptions table = Table(o);
  Fill(client, o, table);
  Traffic traffic(client, o, table.name.str());
  traffic.Run(4 * o.in_flight);
  traffic.Run(o.in_flight, true);
  traffic.Run(o.in_flight);
  Must(traffic.ValuesAreRight(), "wrong result: a row is not what was pushed");

  const double rows = static_cast<double>(o.requests) * o.request;
  const double bytes = rows * o.dim * sizeof(float);
  const std::size_t key_bytes = std::size_t{o.request} * sizeof(Key);
  const std::size_t row_bytes = std::size_t{o.request} * o.dim * sizeof(float);
  Times times;
  times.Add(
      "lookup", [&] { return SecondsOf([&] { traffic.Run(o.requests); }); }, CpuSeconds);
  times.Add(
      "push", [&] { return SecondsOf([&] { traffic.Run(o.requests, true); }); }, CpuSeconds);
  std::optional<TcpPeer> tcp;
  std::string why_not = "--no-peers";
  std::unique_ptr<RedisPeer> redis;
  if (o.peers) {
    tcp.emplace(static_cast<std::size_t>(o.client.channels_per_rank));
    times.Add(
        "bare TCP", [&] { return SecondsOf([&] { tcp->Exchange(o.requests, key_bytes, row_bytes); }); },
        CpuSeconds);
    times.Add(
        "bare TCP", [&] { return SecondsOf([&] { tcp->Exchange(o.requests, key_bytes + row_bytes, 16); }); },
        CpuSeconds);
    redis = RedisPeer::Start({.rows = o.rows, .row_bytes = o.dim * std::uint32_t{sizeof(float)}}, why_not);
  }
  if (redis) {
    times.Add(
        redis->description(), [&] { return redis->Fetch(rows); }, [&] { return redis->CpuSeconds(); });
  }
  times.Take(o.repeats);
  traffic.Run(o.in_flight);
  Must(traffic.ValuesAreRight(), "wrong result: a row is not what was pushed");
  static_cast<void>(client.DropTable(table.name.view()));

  Report report;
  report.benchmark = "rpc";
  report.title = "rows of dim " + std::to_string(o.dim) + " over loopback, door " +
                 (o.client.door == Door::kGrpc ? "grpc" : "best") + ", requests of " +
                 std::to_string(o.request) + " keys, " + std::to_string(o.in_flight) + " in flight";
  report.options = OptionsToJson(o);
  report.device = place.device->Name();
  report.threads = processors;
  report.copy_bytes_per_second = place.memory->CopyBytesPerSecond();
  report.random_lines_per_second = place.memory->LinesPerSecond();
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    Line line{.name = i == 0 ? "lookup" : "push",
              .keys = rows,
              .seconds = times.seconds(i),
              .bytes = 2 * bytes,  // every byte is read and written once
              .floor_seconds = 2 * bytes / report.copy_bytes_per_second,
              .peers = {}};
    const double seconds = Quantile(line.seconds, 0.5);
    report.figures.push_back({.name = line.name + ", payload, GB/s", .value = bytes / seconds / 1e9});
    if (tcp) {
      line.peers.push_back({"bare TCP", processors, times.seconds(2 + i)});
      report.figures.push_back({.name = line.name + ", payload of bare TCP's",
                                .value = MedianRatio(times.seconds(2 + i), times.seconds(i)),
                                .at_least = 0.5});
    }
    if (redis && i == 0) {
      line.peers.push_back({redis->description(), processors, times.seconds(4)});
      report.figures.push_back({.name = "lookup, rows of Redis's",
                                .value = MedianRatio(times.seconds(4), times.seconds(0)),
                                .at_least = 2});
    }
    report.lines.push_back(line);
  }
  report.notes.push_back("the floor is one copy of the payload in memory; client and server share " +
                         std::to_string(processors) + " processors");
  std::string cpu = "processor time a row: ours " + Rounded(times.Cpu(0) / rows * 1e9) + " ns";
  if (!o.server.empty()) cpu += " (the client's alone)";
  if (tcp) cpu += ", bare TCP " + Rounded(times.Cpu(2) / rows * 1e9) + " ns";
  if (redis) cpu += ", Redis and its client " + Rounded(times.Cpu(4) / rows * 1e9) + " ns";
  report.notes.push_back(cpu);
  if (!redis) report.notes.push_back("no Redis beside it: " + why_not);
  return report;
}

}  // namespace

Subcommand AddRpc(CLI::App& parent) {
  auto options = std::make_shared<RpcBenchOptions>();
  CLI::App* app =
      parent.add_subcommand("rpc", "rows over loopback sockets by the C++ client, beside bare TCP and Redis");
  AddCommonOptions(*app, *options);
  app->add_option("--server", options->server, "host:port of a rank; empty: one in this process");
  app->add_option("--rows", options->rows, "rows in the table")->check(CLI::Range(1, 1 << 28));
  app->add_option("--dim", options->dim, "elements a row")->check(CLI::Range(1, 4096));
  app->add_option("--request", options->request, "keys a lookup")->check(CLI::PositiveNumber);
  app->add_option("--in-flight", options->in_flight, "lookups at any time")->check(CLI::PositiveNumber);
  app->add_option("--requests", options->requests, "lookups a timed run")->check(CLI::PositiveNumber);
  app->add_option("--channels", options->client.channels_per_rank, "connections")->check(CLI::PositiveNumber);
  app->add_option("--client-threads", options->client.threads, "of the client")->check(CLI::PositiveNumber);
  app->add_option("--door", options->client.door, "best or grpc")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, Door>{{"best", Door::kBest}, {"grpc", Door::kGrpc}}));
  return {app, options, [options](Collective& collective) { return RunRpc(*options, collective); }};
}

}  // namespace slotwise::bench
