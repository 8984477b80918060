// slotwise-bench embedding times the pooled lookup, and a full training step, of one table over all ranks.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/embedding_check.h"
#include "bench/peers/python.h"
#include "bench/sharded_table.h"
#include "bench/subcommand.h"
#include "bench/timing.h"
#include "bench/workload.h"
#include "kernels/body/hash.h"

namespace slotwise::bench {
namespace {

struct EmbeddingOptions : BatchOptions {
  std::string optimizer_name = "sgd";
  std::string travel = "auto";
  std::string partials = "fp32";
  std::string row_dtype = "float32";
  std::string rounding = "stochastic";
  std::string torch_python = "/usr/bin/python3";
};

template <class Kind>
std::vector<std::string> NamesOf() {
  std::vector<std::string> names;
  for (const auto kind : EveryKind<Kind>()) names.emplace_back(ToString(kind));
  return names;
}

template <class Kind>
Kind Named(const std::string& name) {
  const auto kinds = EveryKind<Kind>();
  return *std::ranges::find_if(kinds, [&](Kind kind) { return ToString(kind) == name; });
}

TableOptions TableOf(const EmbeddingOptions& o) {
  TableOptions table;
  table.name = TableName("bench");
  table.dim = o.dim;
  table.slots = o.slots;
  OptimizerOptions& optimizer = table.optimizer;
  optimizer.kind = Named<OptimizerKind>(o.optimizer_name);
  if (optimizer.kind == OptimizerKind::kAdam || optimizer.kind == OptimizerKind::kRmsProp) {
    optimizer.epsilon = 1e-8F;
  }
  if (optimizer.kind == OptimizerKind::kRmsProp) optimizer.beta2 = 0.99F;
  table.initial_rows = o.rows;
  table.row_dtype = Named<DataType>(o.row_dtype);
  table.rounding = Named<Rounding>(o.rounding);
  return table;
}

struct Floor {
  double bytes = 0;
  double seconds = 0;
};

struct Floors {
  Floor lookup;
  Floor step;
};

// Computes the least that this rank must move for its share of the batch. A lookup gathers its keys' cells
// and rows, and streams keys and pooled rows. A step also gathers each occurrence's gradient in the order of
// rows, and reads and writes each touched row with its state, in order. Transfers between ranks count with
// their measured times.
Floors FloorsOf(const EmbeddingOptions& o, MemorySpeed& memory, double copy, const ShardedTable& table,
                std::span<const std::uint32_t> rows, const Collective& collective) {
  const auto ranks = static_cast<std::uint32_t>(collective.size());
  const BucketMap owner = EvenBucketMap(collective.size());
  const ShardUsage usage = table.Usage();
  std::vector<std::uint32_t> cells_read;
  std::vector<std::uint32_t> rows_read;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> occurrences;  // row, bag
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Key key = KeyOf(rows[i]);
    if (owner[body::Bucket(key)] != Value(collective.rank())) continue;
    cells_read.push_back(static_cast<std::uint32_t>(body::Mix64(Value(key)) % usage.cells));
    rows_read.push_back(rows[i] / ranks);  // the approximate place of the row
    occurrences.emplace_back(rows[i], static_cast<std::uint32_t>(i / o.hot));
  }
  std::ranges::sort(occurrences);
  std::vector<std::uint32_t> gradients_read;
  std::size_t touched = 0;
  for (std::size_t i = 0; i < occurrences.size(); ++i) {
    gradients_read.push_back(occurrences[i].second);
    if (i == 0 || occurrences[i].first != occurrences[i - 1].first) ++touched;
  }

  constexpr double kCellLine = 64;
  const double n = static_cast<double>(rows_read.size());
  const std::size_t row_bytes = BytesOf(Named<DataType>(o.row_dtype)) * o.dim;
  const auto row = static_cast<double>(row_bytes);
  const double state = 4.0 * StateFloats(Named<OptimizerKind>(o.optimizer_name), o.dim);
  const double gradient = 4.0 * o.dim;
  const double all_out = o.bags() * gradient;
  // Several ranks exchange partial sums.
  const double partials_out = o.bags() * static_cast<double>(BytesOf(table.partials())) * o.dim;
  const DistributionCosts& costs = table.costs();  // zeros if there is one rank
  const bool owned = ranks > 1 && table.way() == OutputDistribution::kOwnedBags;
  const double share = owned ? ShareOwned(o.bags(), rows.size(), collective.size()) : 1;
  const double keys_seconds = 8 * o.keys() * costs.all_gather;
  const double sums_seconds = share * partials_out * (owned ? costs.all_to_all : costs.reduce_scatter);
  const double gradients_seconds = share * all_out * (owned ? costs.all_to_all : costs.all_gather);
  const double updated = 2 * static_cast<double>(touched) * (row + state);

  Floors floors;
  const double streamed = 8 * n + share * partials_out;
  floors.lookup.bytes = n * (kCellLine + row) + streamed;
  floors.lookup.seconds = memory.GatherSeconds(cells_read, usage.cells, 16) +
                          memory.GatherSeconds(rows_read, o.rows / ranks + 1, row_bytes) + streamed / copy +
                          keys_seconds + sums_seconds;
  floors.step.bytes = floors.lookup.bytes + n * gradient + updated;
  floors.step.seconds = floors.lookup.seconds +
                        memory.GatherSeconds(gradients_read, o.bags(), o.dim * sizeof(float)) +
                        updated / copy + gradients_seconds;
  return floors;
}

// Starts PyTorch in its own process, or adds a note to the report that says why it did not start.
std::unique_ptr<PythonPeer> StartTorch(const EmbeddingOptions& o, const Place& place, int ranks,
                                       std::span<const std::uint32_t> rows, Report& report) {
  if (!o.peers) return nullptr;
  if (ranks > 1) {
    report.notes.emplace_back("PyTorch's EmbeddingBag is compared with one rank only.");
    return nullptr;
  }
  std::string why_not;
  auto torch = PythonPeer::Start(o.torch_python, "torch_embedding.py",
                                 {{"rows", o.rows},
                                  {"dim", o.dim},
                                  {"bags", o.bags()},
                                  {"hot", o.hot},
                                  {"optimizer", o.optimizer_name},
                                  {"threads", place.threads},
                                  {"device", o.backend},
                                  {"calls", CallsInARow(*place.device)},
                                  {"seed", o.seed}},
                                 std::as_bytes(rows), why_not);
  if (torch) {
    report.notes.push_back("Peer: " + torch->description() +
                           (o.row_dtype == "float32" ? "" : ", of float32"));
  } else {
    report.notes.push_back("The peer PyTorch is not installed, or does not work: " + why_not);
  }
  return torch;
}

std::optional<OutputDistribution> GivenWay(const EmbeddingOptions& o) {
  if (o.travel == "auto") return {};
  return o.travel == "all" ? OutputDistribution::kAllBags : OutputDistribution::kOwnedBags;
}

DataType PartialsOf(const EmbeddingOptions& o) {
  if (o.partials == "fp32") return DataType::kFloat32;
  return o.partials == "fp16" ? DataType::kFloat16 : DataType::kBFloat16;
}

void DescribeExchange(const ShardedTable& table, const std::string& exchange, Report& report) {
  const auto speed = [](const char* what, double cost) {
    return std::string(what) + " " + std::to_string(1e-9 / cost).substr(0, 5) + " GB/s";
  };
  const DistributionCosts& costs = table.costs();
  report.notes.push_back(
      "Ranks exchange batches by " + exchange + ": " + speed("reduce-scatter", costs.reduce_scatter) + ", " +
      speed("all-gather", costs.all_gather) + ", " + speed("all-to-all", costs.all_to_all) +
      " of arrays of all bags. " +
      (table.way() == OutputDistribution::kOwnedBags ? "Bags travel that a rank owns keys of."
                                                     : "All bags travel.") +
      " Partial sums travel as " + std::string(ToString(table.partials())) + ".");
}

Report RunEmbedding(const EmbeddingOptions& o, Collective& collective) {
  Must(o.keys() < 4294967295.0, "batch x slots x hot must be below 2^32");
  Place place = MakePlace(o, collective);
  const TableOptions options = TableOf(o);
  const auto exchange =
      Must(MakeExchange(*place.device, place.device->WorkStream(), collective), "no exchange");
  const DataType partials = PartialsOf(o);
  ShardedTable table(*place.device, collective, *exchange, options,
                     {.partials = partials,
                      .costs = MeasureDistribution(*place.device, collective, *exchange, partials),
                      .way = GivenWay(o)});
  table.Insert(KeysOfRange(0, o.rows));
  Must(table.RowsOfAllRanks() == o.rows, "wrong result: not as many rows as keys");
  const std::vector<std::uint32_t> rows = DrawRows(o.keys(), o.rows, o.alpha, o.seed);
  CheckLookupAndStep(table, options, {rows, o.bags(), o.hot});
  Must(table.RowsOfAllRanks() == o.rows, "wrong result: a batch of present keys added rows");

  Report report;
  report.benchmark = "embedding";
  report.title = "embedding: " + TitleOf(o) + ", alpha " + std::to_string(o.alpha).substr(0, 4) + ", " +
                 o.optimizer_name;
  if (o.row_dtype != "float32") report.title += ", rows of " + o.row_dtype + ", " + o.rounding;
  report.options = ToJson(o);
  report.options.update({{"optimizer", o.optimizer_name},
                         {"travel", o.travel},
                         {"partials", o.partials},
                         {"row_dtype", o.row_dtype},
                         {"rounding", o.rounding}});
  report.device = place.device->Name();
  report.ranks = collective.size();
  if (report.ranks > 1) DescribeExchange(table, exchange->Name(), report);
  report.threads = place.threads;

  std::uint64_t step = 1;
  const int calls = CallsInARow(*place.device);
  const auto seconds_a_call = [&](const auto& call) {
    return SecondsOfAll(collective,
                        [&] {
                          for (int c = 0; c < calls; ++c) call();
                          table.Wait();
                        }) /
           calls;
  };
  std::vector<Contender> contenders{
      {"lookup", [&] { return seconds_a_call([&] { table.Lookup(); }); }, {}},
      {"step",
       [&] { return seconds_a_call([&] { table.TrainStep(ScalarsOfStep(options.optimizer, ++step)); }); },
       {}}};
  const auto torch = StartTorch(o, place, collective.size(), rows, report);
  if (torch) {
    contenders.push_back({"lookup", [&] { return torch->Run("lookup"); }, {}});
    if (torch->ready().at("has_step").get<bool>())
      contenders.push_back({"step", [&] { return torch->Run("step"); }, {}});
  }
  TakeTurns(o.repeats, contenders);

  // The memory is measured after the runs, so that the machine's load is about the same.
  report.copy_bytes_per_second = place.memory->CopyBytesPerSecond();
  report.random_lines_per_second = place.memory->LinesPerSecond();
  const Floors floors = FloorsOf(o, *place.memory, report.copy_bytes_per_second, table, rows, collective);
  for (const auto& [name, floor] : {std::pair{"lookup", floors.lookup}, {"step", floors.step}}) {
    Line line{name,        static_cast<double>(o.keys()),           {},
              floor.bytes, MaxOverRanks(collective, floor.seconds), {}};
    for (const Contender& contender : contenders) {
      if (contender.name != name) continue;
      if (line.seconds.empty()) {
        line.seconds = contender.seconds;
      } else {
        line.peers.push_back({"pytorch", place.threads, contender.seconds});
      }
    }
    report.lines.push_back(std::move(line));
  }
  return report;
}

}  // namespace

Subcommand AddEmbedding(CLI::App& parent) {
  auto options = std::make_shared<EmbeddingOptions>();
  EmbeddingOptions& o = *options;
  CLI::App* app = parent.add_subcommand(
      "embedding",
      "pooled lookup (hash lookup included) and a full training step: lookup, gradient, optimizer\n"
      "Peer: PyTorch's EmbeddingBag with sparse gradients, where it is installed.");
  AddBatchOptions(*app, o, "rows in the table, over all ranks", "samples a batch, over all ranks");
  app->add_option("--optimizer", o.optimizer_name, "what a step does with the gradients")
      ->check(CLI::IsMember(NamesOf<OptimizerKind>()));
  app->add_option("--travel", o.travel,
                  "which bags travel between ranks: all, those that a rank owns keys of, or the faster way")
      ->check(CLI::IsMember({"auto", "all", "owned"}));
  app->add_option("--partials", o.partials, "what partial sums of bags travel as between ranks")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}));
  app->add_option("--row-dtype", o.row_dtype, "the type of the rows' values")
      ->check(CLI::IsMember(NamesOf<DataType>()));
  app->add_option("--rounding", o.rounding, "how a step rounds weights to 16 bits")
      ->check(CLI::IsMember(NamesOf<Rounding>()));
  app->add_option("--torch-python", o.torch_python, "the Python that has PyTorch");
  return {app, options, [options](Collective& collective) { return RunEmbedding(*options, collective); }};
}

}  // namespace slotwise::bench
