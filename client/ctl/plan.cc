#include "client/ctl/plan.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "client/ctl/plan_numbers.h"
#include "client/ctl/text_table.h"
#include "slotwise/data_type.h"
#include "slotwise/types.h"

namespace slotwise::ctl {
namespace {

using nlohmann::ordered_json;

// Returns `value`, as people write it: 0.5, 12.5, 1e+06.
std::string NumberText(double value) { return Format("%g", value); }

Status NoSuch(std::string_view flag, std::string_view word, std::string_view allowed) {
  return InvalidArgument(std::string(flag) + " is " + std::string(word) + ": must be " +
                         std::string(allowed));
}

// NaN is outside all bounds.
Status WithinReals(std::string_view flag, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return InvalidArgument(std::string(flag) + " is " + NumberText(value) + ": must be " + NumberText(least) +
                         " to " + NumberText(most));
}
Status Within(std::string_view flag, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return InvalidArgument(std::string(flag) + " is " + std::to_string(value) + ": must be " +
                         std::to_string(least) + " to " + std::to_string(most));
}

Status CheckNumbers(const PlanFlags& flags) {
  using B = PlanBounds;
  for (const Status& status : {
           Within("--rows", flags.rows, 1, TableOptions::kMaxMaxRows),
           Within("--dim", flags.dim, 1, TableOptions::kMaxDim),
           WithinReals("--max-load", flags.max_load, TableOptions::kLeastMaxLoad, TableOptions::kMostMaxLoad),
           Within("--ranks", flags.ranks, 1, B::kMostRanks),
           Within("--counter-mib", flags.counter_mib, 0, BloomCounter::kMaxMib),
           Within("--slots", flags.slots, 1, TableOptions::kMaxSlots),
           Within("--hot", flags.hot, 1, B::kMostHot),
           Within("--batch", flags.batch, 1, B::kMostBatch),
           WithinReals("--steps", flags.steps, B::kLeastRate, B::kMostRate),
           Within("--checkpoint-every", flags.checkpoint_every, 1, B::kMostSeconds),
           Within("--copy-on-write-mib", flags.copy_on_write_mib, 0, B::kMostMib),
           Within("--round-mib", flags.round_mib, 0, B::kMostRoundMib),
           Within("--queue-mib", flags.queue_mib, 0, B::kMostMib),
           Within("--host-mib", flags.host_mib, 0, B::kMostMib),
           WithinReals("--network", flags.network, B::kLeastRate, B::kMostRate),
           WithinReals("--disk", flags.disk, B::kLeastRate, B::kMostRate),
       }) {
    if (!status.ok()) return status;
  }
  return {};
}

Result<DataType> TypeOf(std::string_view flag, const std::string& name) {
  for (const DataType type : EveryKind<DataType>()) {
    if (ToString(type) == name) return type;
  }
  return NoSuch(flag, name, "float32, float16 or bfloat16");
}

Result<OptimizerKind> KindOf(const std::string& name) {
  std::string all;
  for (const OptimizerKind kind : EveryKind<OptimizerKind>()) {
    if (ToString(kind) == name) return kind;
    all += (all.empty() ? "" : ", ") + std::string(ToString(kind));
  }
  return NoSuch("--optimizer", name, "one of " + all);
}

Result<Shape> ShapeOf(const PlanFlags& flags) {
  if (Status status = CheckNumbers(flags); !status.ok()) return status;
  const auto kind = KindOf(flags.optimizer);
  if (!kind.ok()) return kind.status();
  const auto rows = TypeOf("--row-dtype", flags.row_dtype);
  if (!rows.ok()) return rows.status();
  if (flags.rounding != ToString(Rounding::kStochastic) && flags.rounding != ToString(Rounding::kNearest))
    return NoSuch("--rounding", flags.rounding, "stochastic or nearest");
  if (*rows == DataType::kFloat32 && flags.rounding == ToString(Rounding::kNearest))
    return InvalidArgument("--rounding nearest: needs a --row-dtype of 16 bits");
  const auto values = TypeOf("--data-type", flags.data_type);
  if (!values.ok()) return values.status();
  const auto partials = TypeOf("--partial-sums", flags.partial_sums);
  if (!partials.ok()) return partials.status();
  if (flags.backend != "cuda" && flags.backend != "cpu")
    return NoSuch("--backend", flags.backend, "cuda or cpu");
  const std::string& durability = flags.durability;
  if (durability != "none" && durability != "interval" && durability != "sync")
    return NoSuch("--durability", durability, "none, interval or sync");
  const bool rounds_by_chance =
      *rows != DataType::kFloat32 && flags.rounding == ToString(Rounding::kStochastic);
  Shape shape{.optimizer = *kind,
              .row_dtype = *rows,
              .keeps_keys = rounds_by_chance && !flags.evicts,
              .value_bytes = BytesOf(*values),
              .partial_bytes = BytesOf(*partials),
              .gpu = flags.backend == "cuda",
              .keeps = durability != "none",
              .sync = durability == "sync",
              .bags = flags.batch * flags.slots,
              .keys = flags.batch * flags.slots * flags.hot};
  constexpr std::uint64_t kMost = 0xFFFF'FFFEu;  // samples of a batch, whose offsets have 32 bits
  if (shape.bags > kMost) {
    return InvalidArgument("--batch x --slots is " + std::to_string(shape.bags) +
                           " bags: a batch has at most " + std::to_string(kMost));
  }
  if (shape.keys > kMost) {
    return InvalidArgument("--batch x --slots x --hot is " + std::to_string(shape.keys) +
                           " keys: a batch has at most " + std::to_string(kMost));
  }
  return shape;
}

std::string SecondsText(double seconds) {
  if (seconds < 1e-3) return Format("%.1f us", seconds * 1e6);
  return seconds < 1 ? Format("%.1f ms", seconds * 1e3) : Format("%.1f s", seconds);
}

std::vector<std::string> WarningsOf(const PlanNumbers& plan) {
  const PlanFlags& flags = plan.flags;
  std::vector<std::string> warnings;
  if (plan.network.seconds * flags.steps > 1) {
    warnings.push_back("--network: a step's bytes take " + SecondsText(plan.network.seconds) +
                       ", and at --steps " + NumberText(flags.steps) + " a second a step has " +
                       SecondsText(1 / flags.steps));
  }
  const sizing::MemoryLimits& limits = plan.memory.limits;
  if (plan.step > limits.round * kMiB) {
    warnings.push_back("--batch: a step counts as " + std::to_string(plan.step) +
                       " bytes, more than limits.max_round_mib (--round-mib " + std::to_string(limits.round) +
                       "): it is refused");
  }
  if (flags.host_mib > 0 && !plan.memory.fits) {
    warnings.push_back("--host-mib: " + std::to_string(plan.memory.aside.all()) +
                       " MiB are set aside beside tables: a server does not start");
  } else if (flags.host_mib > 0 && plan.HostWith(plan.device_ahead()) > flags.host_mib * kMiB) {
    warnings.push_back("--host-mib: " + BytesText(plan.HostWith(plan.device_ahead())) +
                       " are needed, of which " + std::to_string(plan.memory.aside.all()) +
                       " MiB are set aside beside tables");
  }
  if (plan.disk.journal_rate > flags.disk * 1e9) {
    warnings.push_back("--disk: the journal takes " +
                       BytesText(static_cast<std::uint64_t>(plan.disk.journal_rate)) +
                       " a second, more than the disk does");
  }
  const double delta_seconds = static_cast<double>(plan.disk.delta) / (flags.disk * 1e9);
  if (delta_seconds > static_cast<double>(flags.checkpoint_every)) {
    warnings.push_back("--disk: a delta takes up to " + SecondsText(delta_seconds) +
                       ", longer than --checkpoint-every");
  }
  return warnings;
}

ordered_json ToJson(const TableMemory& memory, std::uint64_t snapshot, std::uint64_t stages,
                    std::uint64_t device, std::uint64_t host) {
  return {{"cells", memory.cells},
          {"cells_bytes", memory.cells_bytes},
          {"rows_bytes", memory.rows_bytes},
          {"table_bytes", memory.table()},
          {"old_cells_bytes", memory.old_cells_bytes},
          {"marks_bytes", memory.marks_bytes},
          {"counter_bytes", memory.counter_bytes},
          {"snapshot_bytes", snapshot},
          {"stages_bytes", stages},
          {"device_bytes", device},
          {"host_bytes", host}};
}

ordered_json ToJson(const PlanNumbers& plan, const std::vector<std::string>& warnings) {
  const PlanFlags& flags = plan.flags;
  const auto load = static_cast<double>(plan.part.most) / static_cast<double>(plan.ahead.cells);
  const auto doubles_at =
      static_cast<std::uint64_t>(static_cast<double>(plan.ahead.cells) * static_cast<double>(flags.max_load));
  const HostMemory& host = plan.host;
  const sizing::MemoryLimits& limits = plan.memory.limits;
  const Network& network = plan.network;
  const Disk& disk = plan.disk;
  return {{"rank",
           {{"rows", plan.part.share},
            {"most_rows", plan.part.most},
            {"row_bytes", plan.part.row_bytes},
            {"load", load},
            {"doubles_at_rows", doubles_at}}},
          {"initial_rows", plan.part.most * flags.ranks},
          {"made_ahead", ToJson(plan.ahead, plan.snapshot_ahead, plan.stages, plan.device_ahead(),
                                plan.HostWith(plan.device_ahead()))},
          {"grown", ToJson(plan.grown, plan.snapshot_grown, plan.stages, plan.device_grown(),
                           plan.HostWith(plan.device_grown()))},
          {"host",
           {{"process_bytes", host.aside.process * kMiB},
            {"queue_bytes", host.aside.requests * kMiB},
            {"inbox_bytes", host.aside.requests * kMiB},  // its name in 0.1, as below
            {"received_bytes", host.aside.received * kMiB},
            {"shared_bytes", host.aside.shared * kMiB},
            {"exports_bytes", host.aside.exports * kMiB},
            {"rounds_bytes", host.aside.rounds * kMiB},
            {"ledger_bytes", host.aside.ledger * kMiB},
            {"evicted_bytes", host.aside.evicted * kMiB},
            {"checkpoint_bytes", host.aside.checkpoint * kMiB},
            {"spare_bytes", host.aside.spare * kMiB},
            {"lists_bytes", host.lists},
            {"tables_mib", plan.memory.tables_mib},
            {"bytes", host.all()}}},
          {"limits",
           {{"max_message_mib", limits.message},
            {"max_round_mib", limits.round},
            {"max_queue_mib", limits.queue},
            {"max_inbox_mib", limits.queue},
            {"max_shared_mib", limits.shared},
            {"max_ledger_mib", limits.ledger},
            {"max_evicted_mib", limits.evicted},
            {"max_connections", limits.connections},
            {"max_calls", limits.calls},
            {"max_copy_on_write_mib", limits.copy_on_write},
            {"max_preimage_mib", limits.copy_on_write}}},
          {"step",
           {{"keys", plan.shape.keys},
            {"bags", plan.shape.bags},
            {"round_bytes", plan.round},
            {"counts_as_bytes", plan.step}}},
          {"network",
           {{"to_server_bytes", network.to_server},
            {"from_server_bytes", network.from_server},
            {"all_bags_bytes", network.all_bags},
            {"owned_bags_bytes", network.owned_bags},
            {"rank_bytes", network.rank_bytes},
            {"seconds", network.seconds},
            {"share", network.seconds * flags.steps}}},
          {"checkpoint",
           {{"bytes", disk.checkpoint},
            {"seconds", disk.checkpoint_seconds},
            {"delta_bytes", disk.delta},
            {"training_seconds", disk.training_seconds}}},
          {"journal", {{"step_bytes", disk.journal_a_step}, {"bytes_a_second", disk.journal_rate}}},
          {"folder_bytes", disk.most},
          {"recovery",
           {{"read_seconds", disk.read_seconds},
            {"replay_seconds", disk.replay_seconds},
            {"seconds", disk.read_seconds + disk.replay_seconds}}},
          {"warnings", warnings}};
}

std::string Text(const PlanNumbers& plan, const ordered_json& json,
                 const std::vector<std::string>& warnings) {
  const PlanFlags& flags = plan.flags;
  const auto bytes = [](const ordered_json& number) { return BytesText(number.get<std::uint64_t>()); };
  const auto seconds = [](const ordered_json& number) { return SecondsText(number.get<double>()); };
  const auto yes = [](bool there, std::string text) { return there ? std::move(text) : std::string("-"); };
  std::string text = "a rank holds " + CountText(plan.part.share) + " rows on average, at most " +
                     CountText(plan.part.most) + ", of " + CountText(plan.part.row_bytes) +
                     " bytes; its hash table is " +
                     NumberText(std::round(json["rank"]["load"].get<double>() * 1000) / 10) +
                     " % full and doubles at " + CountText(json["rank"]["doubles_at_rows"]) + " rows\n\n";
  TextTable memory({"MEMORY OF A RANK", ">INITIAL_ROWS " + std::to_string(plan.part.most * flags.ranks),
                    ">GROWN BY ITSELF, AT MOST"});
  const std::vector<std::pair<const char*, const char*>> lines = {
      {"rows and optimizer state", "rows_bytes"},
      {"hash table", "cells_bytes"},
      {"the old hash table, as it doubles", "old_cells_bytes"},
      {"marks of changed rows", "marks_bytes"},
      {"the Bloom counter, with its hash table", "counter_bytes"},
      {"a checkpoint's snapshot", "snapshot_bytes"},
      {"rounds of this batch", "stages_bytes"},
      {"DEVICE", "device_bytes"},
      {"HOST, AT MOST", "host_bytes"}};
  for (const auto& [name, field] : lines) {
    if (field == std::string_view("counter_bytes") && flags.counter_mib == 0) continue;
    memory.Add({name, bytes(json["made_ahead"][field]), bytes(json["grown"][field])});
  }
  text += memory.Text() + "\n";
  const ordered_json& network = json["network"];
  const ordered_json& step = json["step"];
  const bool several = flags.ranks > 1;
  TextTable rest({"A STEP", ">"});
  rest.Add({"keys", CountText(step["keys"])});
  rest.Add({"counts as, of limits.max_round_mib", bytes(step["counts_as_bytes"])});
  rest.Add({"trainers to ranks", bytes(network["to_server_bytes"])});
  rest.Add({"ranks to trainers", bytes(network["from_server_bytes"])});
  rest.Add({"a rank to others, all bags", yes(several, bytes(network["all_bags_bytes"]))});
  rest.Add({"a rank to others, owned bags", yes(several, bytes(network["owned_bags_bytes"]))});
  rest.Add({"time on a rank's network", seconds(network["seconds"])});
  rest.Add(
      {"share of it at --steps", NumberText(std::round(network["share"].get<double>() * 1000) / 10) + " %"});
  rest.Add({"journal", yes(plan.shape.sync, bytes(json["journal"]["step_bytes"]))});
  text += rest.Text() + "\n";
  TextTable disk({"DISK", ">"});
  disk.Add({"a checkpoint", bytes(json["checkpoint"]["bytes"])});
  disk.Add({"its time", seconds(json["checkpoint"]["seconds"])});
  disk.Add({"its time while ranks train", seconds(json["checkpoint"]["training_seconds"])});
  disk.Add({"a delta, at most", yes(plan.shape.keeps, bytes(json["checkpoint"]["delta_bytes"]))});
  disk.Add({"the data folder, at most", yes(plan.shape.keeps, bytes(json["folder_bytes"]))});
  disk.Add({"a recovery, at most", yes(plan.shape.keeps, seconds(json["recovery"]["seconds"]))});
  text += disk.Text();
  for (const std::string& warning : warnings) text += "warning: " + warning + "\n";
  return text;
}

}  // namespace

Result<Answer> Plan(const PlanFlags& flags) {
  const auto shape = ShapeOf(flags);
  if (!shape.ok()) return shape.status();
  const PlanNumbers plan = NumbersOf(flags, *shape);
  if (plan.part.most > kMaxRowsPerShard) {
    return InvalidArgument("--rows is " + std::to_string(flags.rows) + ": a rank would hold " +
                           std::to_string(plan.part.most) + ", and holds at most " +
                           std::to_string(kMaxRowsPerShard) + ": raise --ranks");
  }
  const std::vector<std::string> warnings = WarningsOf(plan);
  Answer answer{.json = ToJson(plan, warnings), .text = {}};
  answer.text = Text(plan, answer.json, warnings);
  return answer;
}

}  // namespace slotwise::ctl
