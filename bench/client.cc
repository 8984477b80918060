// slotwise-bench client times the C++ client, and the Python client, which is built on it, with large lookups
// and pushes over a loopback socket.
//
// The server is a rank in this process, unless the command line names a server. Client and server share two
// processors, unless --threads says otherwise. A call is one batch, which the client cuts into parts of at
// most 4 MiB. Several calls are in flight at once, as for a trainer that fetches ahead: when the oldest ends,
// the next begins. The arrays that lookups fill are reused.
#include "slotwise/client.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/local_server.h"
#include "bench/peers/python.h"
#include "bench/subcommand.h"
#include "bench/timing.h"

namespace slotwise::bench {
namespace {

struct ClientBenchOptions : CommonOptions {
  std::string server;
  std::string python = "/usr/bin/python3";
  std::uint32_t rows = 100'000;
  std::uint32_t dim = 64;
  std::uint32_t slots = 26;
  std::uint32_t samples = 4096;
  std::uint32_t in_flight = 4;
  int channels = 2;
};

constexpr const char* kTable = "slotwise-bench-client";
// The calls of a timed run for each call in flight: enough to make the run's beginning and end negligible.
constexpr std::size_t kTurns = 4;

struct Batch {
  std::vector<Key> keys;
  std::vector<std::vector<float>> values;  // of each lookup in flight
  std::vector<float> gradients;
};

// A key's row holds the key in every element until the first push, and all pushes are of zeros.
Batch MakeBatch(const ClientBenchOptions& o) {
  Batch batch;
  std::mt19937_64 random(o.seed);
  batch.keys.resize(std::size_t{o.samples} * o.slots);
  for (Key& key : batch.keys) key = Key{random() % o.rows};
  batch.gradients.resize(batch.keys.size() * o.dim);
  batch.values.assign(o.in_flight, batch.gradients);
  return batch;
}

void Fill(Client& client, const ClientBenchOptions& o) {
  static_cast<void>(client.DropTable(kTable));  // an aborted run may have left it
  TableOptions table;
  table.name = TableName(kTable);
  table.dim = o.dim;
  table.slots = o.slots;
  table.initial_rows = o.rows;
  Must(client.CreateTable(table), "cannot make the table");
  std::vector<Key> keys(o.rows);
  std::vector<float> values(std::size_t{o.rows} * o.dim);
  for (std::uint32_t row = 0; row < o.rows; ++row) {
    keys[row] = Key{row};
    std::fill_n(values.begin() + std::ptrdiff_t{row} * o.dim, o.dim, static_cast<float>(row));
  }
  Must(client.Import(kTable, {keys, values, {}}), "cannot fill the table");
}

// Checks that every value is its key, to the precision of the type on the wire.
void Check(const Batch& batch, std::uint32_t dim, DataType type) {
  const float error = type == DataType::kFloat32 ? 0 : 1.0F / 256;
  for (const std::vector<float>& values : batch.values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto wanted = static_cast<float>(Value(batch.keys[i / dim]));
      Must(std::abs(values[i] - wanted) <= error * wanted, "wrong result: a row is not what was imported");
    }
  }
}

// Makes the run's calls. start(i) begins a call, which may reuse the arrays of the call i in flight before
// it.
template <class Start>
void KeepInFlight(std::size_t in_flight, const char* what, Start start) {
  std::vector<decltype(start(0))> answers;
  for (std::size_t i = 0; i < in_flight; ++i) answers.push_back(start(i));
  for (std::size_t call = 0; call < kTurns * in_flight; ++call) {
    const std::size_t i = call % in_flight;
    Must(answers[i].get(), what);
    if (call + in_flight < kTurns * in_flight) answers[i] = start(i);
  }
}

// Calls `start` with a callback for the answer, and returns the answer's future.
template <class Answer, class Start>
std::future<Answer> Later(const Start& start) {
  const auto answer = std::make_shared<std::promise<Answer>>();
  start([answer](Answer said) { answer->set_value(std::move(said)); });
  return answer->get_future();
}

void LookUp(Client& client, Batch& batch, const CallOptions& call) {
  KeepInFlight(batch.values.size(), "lookup", [&](std::size_t i) {
    const TableLookup lookup{kTable, {batch.keys, {}}, batch.values[i]};
    return Later<Status>([&](auto done) {
      client.LookupAsync({&lookup, 1}, LookupMode::kTrain, std::move(done), call);
    });
  });
}

void Push(Client& client, const Batch& batch, const CallOptions& call) {
  KeepInFlight(batch.values.size(), "push", [&](std::size_t) {
    const TablePush push{kTable, {batch.keys, {}}, batch.gradients};
    return Later<Result<std::vector<std::uint64_t>>>([&](auto done) {
      client.PushAsync({&push, 1}, client.session().Next(), std::move(done), call);
    });
  });
}

Report RunClient(const ClientBenchOptions& o, Collective& collective) {
  Must(collective.size() == 1,
       "client runs alone: for several ranks start a server, and name it with --server");
  const int processors = KeepToProcessors(o.threads > 0 ? o.threads : 2);
  const Place place = MakePlace(o, collective);
  std::unique_ptr<LocalServer> local;
  if (o.server.empty()) local = std::make_unique<LocalServer>(*place.device);
  const std::string address = local ? local->address() : o.server;
  Client client = Must(Client::Connect({address}, {.channels_per_rank = o.channels}), "cannot connect");
  Fill(client, o);
  Batch batch = MakeBatch(o);

  std::string why_not = "--no-peers";
  const auto python = o.peers ? PythonPeer::Start(o.python, "python_client.py",
                                                  {{"address", address},
                                                   {"table", kTable},
                                                   {"dim", o.dim},
                                                   {"samples", o.samples},
                                                   {"in_flight", o.in_flight},
                                                   {"turns", kTurns},
                                                   {"channels", o.channels}},
                                                  std::as_bytes(std::span(batch.keys)), why_not)
                              : nullptr;

  Report report;
  report.benchmark = "client";
  report.title = "batches of " + std::to_string(o.samples) + " samples of " + std::to_string(o.slots) +
                 " slots x dim " + std::to_string(o.dim) + " over loopback gRPC, " +
                 std::to_string(kTurns * o.in_flight) + " calls, " + std::to_string(o.in_flight) +
                 " in flight";
  report.device = place.device->Name();
  report.threads = processors;
  report.copy_bytes_per_second = place.memory->CopyBytesPerSecond();
  report.random_lines_per_second = place.memory->LinesPerSecond();
  report.options = ToJson(static_cast<const CommonOptions&>(o));
  report.options.update({{"server", o.server},
                         {"rows", o.rows},
                         {"dim", o.dim},
                         {"slots", o.slots},
                         {"samples", o.samples},
                         {"in_flight", o.in_flight},
                         {"channels", o.channels}});

  std::vector<Contender> contenders;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const std::string name(ToString(type));
    const CallOptions call{.data_type = type};
    LookUp(client, batch, call);
    Check(batch, o.dim, type);
    contenders.push_back({"lookup " + name,
                          [&client, &batch, call] { return SecondsOf([&] { LookUp(client, batch, call); }); },
                          {}});
    contenders.push_back({"push " + name,
                          [&client, &batch, call] { return SecondsOf([&] { Push(client, batch, call); }); },
                          {}});
  }
  const std::size_t ours = contenders.size();
  for (std::size_t i = 0; python && i < ours; ++i) {
    const std::string name = contenders[i].name;
    contenders.push_back({name, [&python, name] { return python->Run(name); }, {}});
  }
  TakeTurns(o.repeats, contenders);
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    LookUp(client, batch, {.data_type = type});
    Check(batch, o.dim, type);
  }
  static_cast<void>(client.DropTable(kTable));

  const double calls = static_cast<double>(kTurns) * o.in_flight;
  for (std::size_t i = 0; i < ours; ++i) {
    const std::size_t element = contenders[i].name.ends_with("bfloat16") ? 2 : sizeof(float);
    Line line{.name = contenders[i].name,
              .keys = static_cast<double>(batch.keys.size()) * calls,
              .seconds = contenders[i].seconds,
              // Every byte on the wire is read and written once.
              .bytes = 2.0 * static_cast<double>(batch.gradients.size() * element) * calls,
              .floor_seconds = 0,
              .peers = {}};
    line.floor_seconds = line.bytes / report.copy_bytes_per_second;
    if (python) line.peers.push_back({"the Python client", processors, contenders[ours + i].seconds});
    report.lines.push_back(std::move(line));
  }
  report.notes.push_back("the floor is one copy of what travels; client and server share " +
                         std::to_string(processors) + " processors");
  if (python) report.notes.push_back("Peer: " + python->description());
  if (!python) report.notes.push_back("no Python client beside it: " + why_not);
  return report;
}

}  // namespace

Subcommand AddClient(CLI::App& parent) {
  auto options = std::make_shared<ClientBenchOptions>();
  CLI::App* app =
      parent.add_subcommand("client", "large lookups and pushes by the C++ client and the Python client");
  AddCommonOptions(*app, *options);
  app->add_option("--server", options->server, "host:port of a rank; empty: one in this process");
  app->add_option("--python", options->python, "the Python that has NumPy");
  app->add_option("--rows", options->rows, "rows in the table")->check(CLI::Range(1, 1 << 24));
  app->add_option("--dim", options->dim, "elements a row")->check(CLI::Range(1, 4096));
  app->add_option("--slots", options->slots, "keys a sample")->check(CLI::Range(1, 4096));
  app->add_option("--samples", options->samples, "samples a batch")->check(CLI::PositiveNumber);
  app->add_option("--in-flight", options->in_flight, "calls at once")->check(CLI::Range(1, 64));
  app->add_option("--channels", options->channels, "connections")->check(CLI::PositiveNumber);
  return {app, options, [options](Collective& collective) { return RunClient(*options, collective); }};
}

}  // namespace slotwise::bench
