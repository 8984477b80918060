#include "client/ctl/commands.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "client/ctl/health.h"
#include "client/ctl/table_folder.h"
#include "client/ctl/text_table.h"

namespace slotwise::ctl {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;

milliseconds Milliseconds(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1e3)); }

// Returns the shortest decimal text that reads back as `value`.
std::string FloatText(float value) {
  std::array<char, 32> text;
  for (int digits = 1; digits <= 9; ++digits) {
    std::snprintf(text.data(), text.size(), "%.*g", digits, static_cast<double>(value));
    if (std::stof(text.data()) == value) break;
  }
  return text.data();
}

// Returns the double that JSON prints as 0.05, where the float's own double would print as
// 0.05000000074505806.
double FloatJson(float value) { return std::stod(FloatText(value)); }

// Formats a count with its word: "1 row", "2,000 rows".
std::string Counted(std::uint64_t count, const char* noun) {
  return CountText(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string RowsText(std::uint64_t rows) { return Counted(rows, "row"); }

std::string EvictionText(const TableOptions& options) {
  const EvictionOptions& eviction = options.eviction;
  std::string by(ToString(eviction.score));
  if (eviction.half_life_steps > 0) by += ", halved every " + Counted(eviction.half_life_steps, "step") + ",";
  return "evicts by " + by + " above " + RowsText(RowsOfShare(options.max_rows, eviction.at)) + ", to " +
         CountText(RowsOfShare(options.max_rows, eviction.to));
}

// "admits keys that occurred 3 times, of up to 1,000 counted keys", "admits keys that occurred 3 times, by a
// Bloom counter of 64 MiB", or "admits keys with probability 0.1".
std::string AdmissionText(const TableOptions& options) {
  const AdmissionOptions& admission = options.admission;
  std::string text = options.has_candidates()
                         ? "admits keys that occurred " + Counted(admission.threshold, "time") +
                               (options.has_bloom_counter()
                                    ? ", by a Bloom counter of " + CountText(admission.counter_mib) + " MiB"
                                    : ", of up to " + Counted(CandidatesOf(options).max_rows, "counted key"))
                         : "admits keys with probability " + FloatText(admission.probability);
  if (admission.absent == AbsentRows::kZeros) text += ", and looks others up as zeros";
  return text;
}

std::string ReasonText(EvictedBy by) {
  switch (by) {
    case EvictedBy::kFullTable:
      return "full_table";
    case EvictedBy::kTimeToLive:
      return "time_to_live";
    case EvictedBy::kRequest:
      return "request";
    case EvictedBy::kOther:
      break;
  }
  return "other";
}

// "by step", or "-" for a table that refuses keys when it is full.
std::string ScoreText(const TableOptions& options) {
  if (options.eviction.score == ScoreKind::kNone) return "-";
  return "by " + std::string(ToString(options.eviction.score));
}

// Returns null if there are none.
ordered_json QuantilesJson(const Quantiles& of) {
  if (of.rows == 0) return nullptr;
  return {{"rows", of.rows}, {"p0", of.p0},   {"p10", of.p10},  {"p50", of.p50},
          {"p90", of.p90},   {"p99", of.p99}, {"p100", of.p100}};
}

// "ages of 5 rows, in steps: 0 % up to 1, 10 % up to 1, ..., 100 % up to 15".
std::string QuantilesText(const char* numbers, const char* unit, const Quantiles& of) {
  if (of.rows == 0) return {};
  std::string text = std::string(numbers) + " of " + RowsText(of.rows) + unit + ":";
  const char* separator = " ";
  for (const auto& [percent, number] :
       {std::pair("0", of.p0), std::pair("10", of.p10), std::pair("50", of.p50), std::pair("90", of.p90),
        std::pair("99", of.p99), std::pair("100", of.p100)}) {
    text.append(separator).append(percent).append(" % up to ").append(CountText(number));
    separator = ", ";
  }
  return text + "\n";
}

// ", rows of bfloat16, rounded by chance", or nothing for rows of float32.
std::string RowTypeText(const TableOptions& options) {
  if (options.row_dtype == DataType::kFloat32) return {};
  return ", rows of " + std::string(ToString(options.row_dtype)) +
         (options.rounding == Rounding::kNearest ? ", rounded to nearest" : ", rounded by chance");
}

// "100 steps", "3,600 s", or "100 steps or 3,600 s".
std::string TimeToLiveText(const TableOptions& options) {
  std::string text;
  if (options.ttl_steps > 0) text = Counted(options.ttl_steps, "step");
  if (options.ttl_steps > 0 && options.ttl_seconds > 0) text += " or ";
  if (options.ttl_seconds > 0) text += CountText(options.ttl_seconds) + " s";
  return text;
}

}  // namespace

Result<Answer> ShowStatus(const ServerFlags& server, std::optional<double> wait) {
  const auto health = Health(server.address, server.credentials, Milliseconds(wait.value_or(server.timeout)),
                             wait.has_value());
  if (!health.ok()) return health.status();
  Answer answer{.json = {{"status", *health}}, .text = server.address + " is " + *health + "\n"};
  answer.good = *health == "SERVING";
  if (!answer.good) return answer;

  auto client = Client::Connect({server.address},
                                {.timeout = Milliseconds(server.timeout), .credentials = server.credentials});
  if (!client.ok()) return client.status();
  const auto topology = client->Topology();
  if (!topology.ok()) return topology.status();
  answer.json["version"] = topology->version;
  answer.json["max_message_bytes"] = topology->max_message_bytes;
  answer.json["max_round_bytes"] = topology->max_round_bytes;
  answer.json["ranks"] = ordered_json::array();
  TextTable ranks({">RANK", "ADDRESS", "DEVICE"});
  for (const ServerRank& rank : topology->ranks) {
    ranks.Add({std::to_string(answer.json["ranks"].size()), rank.address, rank.device});
    answer.json["ranks"].push_back({{"address", rank.address}, {"device", rank.device}});
  }
  answer.text += "version " + topology->version + ", requests of at most " +
                 BytesText(topology->max_message_bytes) + "\n" + ranks.Text();
  return answer;
}

Result<Answer> ShowHealth(const std::vector<std::string>& addresses, const Credentials& credentials,
                          double seconds, bool wait) {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + Milliseconds(seconds);
  Answer answer{.json = {{"servers", ordered_json::array()}}, .text = {}};
  for (const std::string& address : addresses) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    // The last servers get time to answer even if the first ones used all of it.
    const auto health = Health(address, credentials, std::max(left, milliseconds(wait ? 1000 : 1)), wait);
    if (!health.ok()) return health.status();
    answer.json["servers"].push_back({{"address", address}, {"status", *health}});
    answer.text += address + " is " + *health + "\n";
    if (*health != "SERVING") answer.good = false;
  }
  return answer;
}

Result<Answer> ShowTables(Client& client) {
  const auto tables = client.ListTables();
  if (!tables.ok()) return tables.status();
  Answer answer{.json = {{"tables", ordered_json::array()}}, .text = {}};
  TextTable text({"NAME", ">DIM", ">SLOTS", "COMBINER", "OPTIMIZER", ">LEARNING RATE", ">MAX ROWS", "ROWS OF",
                  "EVICTION"});
  for (const TableOptions& table : *tables) {
    answer.json["tables"].push_back(OptionsJson(table));
    text.Add({table.name.str(), std::to_string(table.dim), std::to_string(table.slots),
              std::string(ToString(table.combiner)), std::string(ToString(table.optimizer.kind)),
              FloatText(table.optimizer.learning_rate), CountText(table.max_rows),
              std::string(ToString(table.row_dtype)), ScoreText(table)});
  }
  answer.text = tables->empty() ? "there are no tables\n" : text.Text();
  return answer;
}

Result<Answer> Create(Client& client, const TableOptions& options) {
  const auto made = client.CreateTable(options);
  if (!made.ok()) return made.status();
  return Answer{.json = {{"created", made->created}, {"options", OptionsJson(made->options)}},
                .text = made->options.name.str() + (made->created ? " is made\n" : " was there already\n")};
}

Result<Answer> Drop(Client& client, const std::string& table, bool missing_ok) {
  const Status status = client.DropTable(table);
  const bool missing = status.code() == StatusCode::kNotFound && missing_ok;
  if (!status.ok() && !missing) return status;
  return Answer{.json = {{"dropped", !missing}},
                .text = table + (missing ? " was not there\n" : " is gone\n")};
}

Result<Answer> Describe(Client& client, const std::string& table, bool with_ages) {
  const auto info = client.DescribeTable(table, {}, with_ages);
  if (!info.ok()) return info.status();
  Answer answer{
      .json = {{"options", OptionsJson(info->options)},
               {"steps", info->steps},
               {"learning_rate", FloatJson(info->learning_rate)},
               {"base_learning_rate", FloatJson(info->base_learning_rate)},
               {"rows", info->rows()},
               {"new_rows", info->new_rows},
               {"evicted_rows", info->evicted_rows},
               {"expired_rows", info->expired_rows},
               {"refused_keys", info->refused_keys},
               {"candidates", info->candidates},
               {"counter_blocks", info->counter_blocks},
               {"evicted_ages", QuantilesJson(info->evicted_ages)},
               {"youngest_evicted_age", info->youngest_evicted_age},
               {"rounds", {{"all_bags", info->rounds.all_bags}, {"owned_bags", info->rounds.owned_bags}}},
               {"shards", ordered_json::array()}},
      .text = {}};
  if (with_ages) {
    answer.json["ages"] = QuantilesJson(info->ages);
    answer.json["counts"] = QuantilesJson(info->counts);
  }
  TextTable shards({">RANK", ">ROWS", ">CELLS", ">MEMORY"});
  for (const ShardDescription& shard : info->shards) {
    shards.Add({std::to_string(answer.json["shards"].size()), CountText(shard.rows), CountText(shard.cells),
                BytesText(shard.bytes)});
    answer.json["shards"].push_back({{"rows", shard.rows}, {"cells", shard.cells}, {"bytes", shard.bytes}});
  }
  const TableOptions& options = info->options;
  answer.text = options.name.str() + ": dim " + std::to_string(options.dim) + ", slots " +
                std::to_string(options.slots) + ", " + std::string(ToString(options.combiner)) + ", " +
                std::string(ToString(options.optimizer.kind)) + RowTypeText(options) + "\n" +
                RowsText(info->rows()) + ", " + CountText(info->steps) + " steps, learning rate " +
                FloatText(info->learning_rate) + "\n";
  if (options.evicts()) answer.text += EvictionText(options) + "; ";
  if (options.expires()) {
    answer.text += "rows expire " + TimeToLiveText(options) + " after a push touched them; " +
                   RowsText(info->expired_rows) + " expired, ";
  }
  const std::string made = ", " + RowsText(info->new_rows) + " made\n";
  if (options.has_scores()) answer.text += RowsText(info->evicted_rows) + " evicted" + made;
  if (info->evicted_ages.rows > 0) {
    answer.text += QuantilesText("ages", " that a full table evicted, in steps", info->evicted_ages) +
                   "the last eviction's rows were at least " + Counted(info->youngest_evicted_age, "step") +
                   " old\n";
  }
  if (options.admits()) {
    answer.text += AdmissionText(options) + "; " + Counted(info->refused_keys, "occurrence") + " refused";
    if (options.has_bloom_counter()) {
      answer.text += ", " + CountText(info->counter_blocks) + " of " +
                     Counted(CandidatesOf(options).max_rows, "block") + " used";
    } else if (options.has_candidates()) {
      answer.text += ", " + Counted(info->candidates, "key") + " counted";
    }
    answer.text += options.has_scores() ? "\n" : made;
  }
  if (with_ages && !options.has_scores()) answer.text += "rows have no ages: the table keeps no scores\n";
  answer.text += QuantilesText("ages", ", in steps", info->ages) + QuantilesText("counts", "", info->counts);
  if (info->shards.size() > 1) {
    answer.text += "all bags travelled in " + Counted(info->rounds.all_bags, "round") +
                   ", owned ones alone in " + Counted(info->rounds.owned_bags, "round") + "\n";
  }
  answer.text += shards.Text();
  return answer;
}

Result<Answer> ShowDigest(Client& client, const std::string& table) {
  const auto digest = client.Digest(table);
  if (!digest.ok()) return digest.status();
  return Answer{
      .json = {{"digest", digest->digest}, {"rows", digest->rows}, {"steps", digest->steps}},
      .text = digest->digest + "  " + RowsText(digest->rows) + ", " + CountText(digest->steps) + " steps\n"};
}

Result<Answer> SetRate(Client& client, const std::string& table, float learning_rate) {
  if (Status status = client.SetLearningRate(table, learning_rate); !status.ok()) return status;
  return Answer{.json = {{"learning_rate", FloatJson(learning_rate)}},
                .text = table + " learns at " + FloatText(learning_rate) + " from its next step on\n"};
}

Result<Answer> Alter(Client& client, const std::string& table, const TableAlteration& alteration) {
  const auto outcome = client.AlterTable(table, alteration);
  if (!outcome.ok()) return outcome.status();
  return Answer{.json = {{"altered", outcome->altered}, {"options", OptionsJson(outcome->options)}},
                .text = table + (outcome->altered ? " is altered\n" : " had these options already\n")};
}

Result<Answer> Evict(Client& client, const std::string& table, const RowsToEvict& rows) {
  const auto evicted = client.EvictRows(table, rows);
  if (!evicted.ok()) return evicted.status();
  return Answer{.json = {{"evicted_rows", *evicted}},
                .text = RowsText(*evicted) + " of " + table + " went\n"};
}

Result<Answer> ShowEvicted(Client& client, const std::string& table, const EvictedSince& since) {
  const auto evicted = client.Evicted(table, since);
  if (!evicted.ok()) return evicted.status();
  Answer answer{.json = {{"complete_after", evicted->complete_after},
                         {"gap", evicted->gap},
                         {"through_round", evicted->through_round},
                         {"instance", std::to_string(evicted->instance)},
                         {"generation", evicted->generation},
                         {"rounds", ordered_json::array()}},
                .text = {}};
  for (const EvictedKeys& gone : evicted->rounds) {
    ordered_json keys = ordered_json::array();
    std::string& text = answer.text;
    text += "round " + std::to_string(gone.round) + ", by " + ReasonText(gone.by) + ", " +
            Counted(gone.keys.size(), "key") + ":";
    for (const Key key : gone.keys) {
      const std::string number = std::to_string(Value(key));
      keys.push_back(number);
      text.append(" ").append(number);
    }
    text += '\n';
    answer.json["rounds"].push_back({{"round", gone.round}, {"by", ReasonText(gone.by)}, {"keys", keys}});
  }
  answer.text += Counted(evicted->keys(), "key") + " up to round " + std::to_string(evicted->through_round) +
                 "; go on with --after-round " + std::to_string(evicted->through_round) + " --instance " +
                 std::to_string(evicted->instance) + "\n";
  if (evicted->gap) {
    answer.warning = "keys may be missing: the list is complete after round " +
                     std::to_string(evicted->complete_after) + " only";
  }
  return answer;
}

Result<Answer> Export(Client& client, const std::string& table, const std::string& folder, bool with_state) {
  const auto rows = ExportTable(client, table, folder, with_state);
  if (!rows.ok()) return rows.status();
  return Answer{.json = {{"rows", *rows}, {"folder", folder}},
                .text = RowsText(*rows) + " of " + table + " are in " + folder + "\n"};
}

Result<Answer> Import(Client& client, const std::string& table, const std::string& folder, bool with_state) {
  const auto imported = ImportTable(client, table, folder, with_state);
  if (!imported.ok()) return imported.status();
  Answer answer{.json = {{"rows", imported->rows}},
                .text = RowsText(imported->rows) + " of " + folder + " are in " + table + "\n",
                .warning = imported->warning};
  if (!answer.warning.empty()) answer.json["warning"] = answer.warning;
  return answer;
}

}  // namespace slotwise::ctl
